"""Our own server as a process beside the control plane."""

from __future__ import annotations

import itertools
import json
import ssl
import sys
import time
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path

import httpx

from certs.files import ensure
from tests.e2e.client import ApiError, Client, Json
from tests.e2e.processes import Process, free_port, until
from webhook.telemetry.log import GATHER

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
KINDS = {"validate": "validatingwebhookconfigurations", "mutate": "mutatingwebhookconfigurations"}

# What a registration by hand sends where: resources by group, with the operations.
ROWS: list[tuple[str, str, list[str], list[str]]] = [
    ("resourceslices", "resource.k8s.io", ["resourceslices"], ["CREATE", "UPDATE"]),
    ("resourceclaims-status", "resource.k8s.io", ["resourceclaims/status"], ["UPDATE"]),
    ("resourceclaims", "resource.k8s.io", ["resourceclaims", "resourceclaimtemplates"], ["CREATE"]),
    ("pods", "", ["pods"], ["CREATE", "UPDATE"]),
    ("pods-status", "", ["pods/status"], ["UPDATE"]),
    ("pods-binding", "", ["pods/binding"], ["CREATE"]),
]


_probes = itertools.count()


class Guard:
    """``allocguard serve`` on loopback ports of its own, in ``folder``; ``arguments`` come after those."""

    def __init__(self, name: str, folder: Path, admin: Client, arguments: list[str]) -> None:
        self.name, self.folder, self._admin = name, folder, admin
        self.port, self.metrics_port = free_port(), free_port()
        self.url, self.metrics_url = f"https://127.0.0.1:{self.port}", f"https://127.0.0.1:{self.metrics_port}"
        self.certificates = folder / "certs"
        ensure(self.certificates, ["127.0.0.1", "localhost"], datetime.now(UTC))
        command = [sys.executable, "-m", "webhook.cli", "serve", "--host=127.0.0.1", f"--port={self.port}"]
        command += [f"--metrics-port={self.metrics_port}", f"--certs={self.certificates}"]
        command += [argument.replace("{url}", self.url) for argument in arguments]
        self.process = Process(name, command, folder / f"{name}.log")

    @property
    def authority(self) -> bytes:
        """What clients trust, PEM."""
        return (self.certificates / "ca.crt").read_bytes()

    def start(self, ready: bool = True) -> None:
        """Start it, and with ``ready`` wait until it says so."""
        self.process.start()
        if ready:
            self.wait()

    def wait(self, within: float = 30) -> None:
        """Wait until it is ready."""
        until(self.ready, within, f"{self.name} is ready")

    def ready(self) -> bool:
        """Whether /readyz says ok."""
        try:
            return self.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self) -> int:
        """End it in good order; gives its exit code."""
        return self.process.stop()

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()

    def restart(self, ready: bool = True) -> None:
        """End it and start it again on the same ports, certificates and arguments."""
        self.stop()
        self.start(ready)

    def get(self, path: str, metrics: bool = False, accept: str = "*/*") -> httpx.Response:
        """What it answers at ``path``, at the port for metrics or the main one."""
        trust = ssl.create_default_context(cafile=str(self.certificates / "ca.crt"))
        url = self.metrics_url if metrics else self.url
        return httpx.get(f"{url}{path}", headers={"accept": accept}, verify=trust, timeout=10, trust_env=False)

    def post(self, path: str, review: object) -> Json:
        """Its answer to one AdmissionReview, the ``response``."""
        trust = ssl.create_default_context(cafile=str(self.certificates / "ca.crt"))
        answer = httpx.post(f"{self.url}{path}", json=review, verify=trust, timeout=30, trust_env=False)
        response: Json = answer.raise_for_status().json()["response"]
        return response

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of the metric ``name`` that have these labels."""
        total = 0.0
        for line in self.get("/metrics", metrics=True).text.splitlines():
            sample, _, value = line.rpartition(" ")
            series, _, given = sample.partition("{")
            if series == name and all(f'{key}="{label}"' in given for key, label in labels.items()):
                total += float(value)
        return total

    def lines(self, **fields: object) -> list[Json]:
        """The lines of its log that have these fields: all that were told when it is asked."""
        time.sleep(2 * GATHER)
        found = []
        for text in self.process.log.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and all(line.get(key) == value for key, value in fields.items()):
                found.append(line)
        return found

    def register(
        self,
        failure_policy: str = "Fail",
        rows: list[tuple[str, str, list[str], list[str]]] | None = None,
        timeout: int = 5,
        mutate: bool = False,
        exempt: tuple[str, ...] = ("kube-system",),
    ) -> None:
        """Register it by hand, by url, for ``rows``; in force when this returns."""
        endpoint = "mutate" if mutate else "validate"
        trusted = b64encode(self.authority).decode()
        webhooks = [
            {
                "name": f"{row}.{self.name}.test",
                "clientConfig": {"url": f"{self.url}/{endpoint}/{row}", "caBundle": trusted},
                "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "resources": what, "operations": operations}],
                "failurePolicy": failure_policy,
                "sideEffects": "NoneOnDryRun",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": timeout,
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(exempt)}
                    ]
                },
            }
            for row, group, what, operations in (ROWS if rows is None else rows)
        ]
        register(self._admin, endpoint, self.name, webhooks)


def register(admin: Client, endpoint: str, name: str, webhooks: list[Json]) -> None:
    """Write the configuration ``name`` of ``validate`` or ``mutate`` webhooks, over the one that is there, and wait
    until the API server goes by it.
    """
    path = f"{CONFIGURATIONS}/{KINDS[endpoint]}"
    kind = {"validate": "ValidatingWebhookConfiguration", "mutate": "MutatingWebhookConfiguration"}[endpoint]
    label = {"e2e.allocguard.dev/probe": f"{name}-{next(_probes)}"}
    # Nobody answers there: once the label is refused, the others of this configuration are in force too.
    probe = {
        "name": "probe.e2e.test",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
        "objectSelector": {"matchLabels": label},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": [*webhooks, probe],
    }
    try:
        admin.create(path, body)
    except ApiError as error:
        if error.code != 409:
            raise
        admin.patch(f"{path}/{name}", {"webhooks": body["webhooks"]})

    def in_force() -> bool:
        try:
            probing = {"metadata": {"name": "probe", "labels": label}}
            admin.create("/api/v1/namespaces/default/configmaps", probing, dryRun="All")
        except ApiError as error:
            return "probe.e2e.test" in error.message
        return False

    until(in_force, 20, f"the registration of {name} is in force")
