"""One real control plane: etcd, API server, scheduler and controller-manager, without a kubelet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

from tests.e2e import build, identity
from tests.e2e.client import Client
from tests.e2e.processes import Process, free_port, until

API_SERVER, SCHEDULER, CONTROLLERS = "kube-apiserver", "kube-scheduler", "kube-controller-manager"
GATE = "DRANodeAllocatableResources"

Gates = Mapping[str, bool]


class ControlPlane:
    """The processes of one release, their folder, and their identities.

    ``gates`` are on or off in every component; ``component_gates`` in the one that is named, over those. ``flags`` are
    more flags by component. ``scheduler`` are fields over those of the scheduler's configuration.
    """

    def __init__(
        self,
        folder: Path,
        release: str,
        gates: Gates | None = None,
        component_gates: Mapping[str, Gates] | None = None,
        flags: Mapping[str, Sequence[str]] | None = None,
        scheduler: Mapping[str, object] | None = None,
    ) -> None:
        self.folder, self.release = folder, release
        self.minor = int(release.split(".")[1])
        self._gates: dict[str, bool] = {GATE: True, **(gates or {})}
        self._component_gates = component_gates or {}
        self._flags = flags or {}
        self._scheduler = scheduler or {}
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = identity.Authority(folder / "pki")
        self.url = f"https://127.0.0.1:{free_port()}"
        self._binaries = build.kubernetes(release)
        self.processes: dict[str, Process] = {}
        for make in (self._etcd, self._api_server, self._scheduler_process, self._controllers):
            process = make()
            self.processes[process.name] = process

    def start(self) -> None:
        """Start everything and wait until the API server is ready; raises processes.Died with a log."""
        self.processes["etcd"].start()
        self._start()

    def _start(self) -> None:
        self.processes[API_SERVER].start()
        until(self._ready, 120, "the API server is ready")
        # Started before it is ready, they would only complain and wait.
        self.processes[SCHEDULER].start()
        self.processes[CONTROLLERS].start()

    def stop(self) -> None:
        """End everything. Nothing of it is needed any more, so nothing is asked to end in good order."""
        for process in reversed(self.processes.values()):
            process.kill()

    def ready(self, within: float = 60) -> None:
        """Wait until the API server is ready, after it, or etcd, was restarted."""
        until(self._ready, within, "the API server is ready")

    def restart(self, component_gates: Mapping[str, Gates] | None = None) -> None:
        """Start everything but etcd anew, with these gates of single components instead of the old ones."""
        for name in (CONTROLLERS, SCHEDULER, API_SERVER):
            self.processes[name].kill()
        self._component_gates = component_gates or {}
        for name in (API_SERVER, SCHEDULER, CONTROLLERS):
            process = self.processes[name]
            kept = [part for part in process.command if not part.startswith("--feature-gates=")]
            process.command = [*kept, self._gate_flag(name)]
        self._start()

    def client(self, user: str, *groups: str, created: list[str] | None = None) -> Client:
        """A client with a certificate for ``user`` in ``groups``."""
        return Client(self.url, self.authority.trust(self.authority.client(user, *groups)), created=created)

    def token_client(self, token: str, created: list[str] | None = None) -> Client:
        """A client that shows a ServiceAccount's token."""
        return Client(self.url, self.authority.trust(), token, created)

    def impersonating(self, *headers: tuple[str, str], created: list[str] | None = None) -> Client:
        """The administrator, who stands for whom the ``Impersonate-…`` headers name."""
        trust = self.authority.trust(self.authority.client("admin", "system:masters"))
        return Client(self.url, trust, created=created, more=headers)

    def kubeconfig(self, user: str, *groups: str, token: str = "") -> Path:
        """A kubeconfig for ``user``: with a client certificate, or with ``token``."""
        pair = None if token else self.authority.client(user, *groups)
        path = self.folder / f"{user.replace(':', '_')}.kubeconfig"
        return identity.kubeconfig(path, self.url, self.authority.certificate, pair, token)

    def _ready(self) -> bool:
        try:
            trust = self.authority.trust()
            return httpx.get(f"{self.url}/readyz", verify=trust, timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def _etcd(self) -> Process:
        self._store = f"http://127.0.0.1:{free_port()}"
        peer = f"http://127.0.0.1:{free_port()}"
        command: list[str | Path] = [
            build.etcd(),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self._store}",
            f"--advertise-client-urls={self._store}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        return self._process("etcd", command)

    def _api_server(self) -> Process:
        self._signing, public = identity.signing_keys(self.folder / "pki")
        certificate, key = self.authority.server("apiserver")
        command: list[str | Path] = [
            self._binaries[API_SERVER],
            f"--etcd-servers={self._store}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.url.rpartition(':')[2]}",
            f"--cert-dir={self.folder / 'pki'}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.authority.certificate}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self._signing}",
            f"--service-account-key-file={public}",
            "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true",
        ]
        return self._process(API_SERVER, command)

    def _scheduler_process(self) -> Process:
        configuration: dict[str, object] = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig("system:kube-scheduler"))},
            "leaderElection": {"leaderElect": False},
            # A pod that failed is tried again soon: what a test waits for does not depend on how long that takes.
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1,
            **self._scheduler,
        }
        path = self.folder / "scheduler.json"
        path.write_text(json.dumps(configuration))
        return self._process(SCHEDULER, [self._binaries[SCHEDULER], f"--config={path}", "--secure-port=0"])

    def _controllers(self) -> Process:
        access = self.kubeconfig("system:kube-controller-manager")
        command: list[str | Path] = [
            self._binaries[CONTROLLERS],
            f"--kubeconfig={access}",
            f"--authentication-kubeconfig={access}",
            f"--authorization-kubeconfig={access}",
            "--secure-port=0",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._signing}",
            f"--root-ca-file={self.authority.certificate}",
            # It would taint nodes whose kubelet is silent, and here all of them are.
            "--controllers=*,-node-lifecycle-controller",
        ]
        return self._process(CONTROLLERS, command)

    def _process(self, name: str, command: Sequence[str | Path]) -> Process:
        flags = list(self._flags.get(name, ()))
        if name != "etcd":
            flags.append(self._gate_flag(name))
        server = self.processes.get(API_SERVER)
        return Process(name, [*command, *flags], self.folder / f"{name}.log", depends=server)

    def _gate_flag(self, name: str) -> str:
        gates = {**self._gates, **self._component_gates.get(name, {})}
        return "--feature-gates=" + ",".join(f"{gate}={str(on).lower()}" for gate, on in gates.items())
