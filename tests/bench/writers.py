"""What it costs a decision to ask who writes: ``python -m tests.bench.writers``.

Writes of a driver's plugin and of its node's kubelet, which all pass, are decided by the shipped policies and by the
same ones without the policy that asks who writes. Batches of both take turns, and it costs what they differ by, in time
of the processor.
"""

from __future__ import annotations

import gc
import json
import statistics
from collections.abc import Callable

from tests.bench import fleet
from tests.bench.decisions import seconds
from tests.bench.fleet import DOMAIN, Json
from tests.bench.ledger import row
from webhook.kube.admission import raw_request
from webhook.kube.release import Release
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.policy.revision import revision_of
from webhook.store import policies

NODES, WRITES, BATCH = 1_000, 2_000, 50
SPACE, PLUGIN, DRIVER = "drivers", "plugin", f"gpu.{DOMAIN}"
ACCOUNTS, EXTRA = "system:serviceaccounts", "authentication.kubernetes.io/"


def main() -> None:
    """Print the figures."""
    enforced = policies.read([policies.shipped()])
    snapshot, book = build([*fleet.cluster(NODES), rollout(), *map(plugin, range(NODES))], Release(36)), Book()
    gc.collect()
    gc.freeze()
    for policy, (what, made) in KINDS.items():
        without = revision_of(each for each in enforced.policies if each.name != policy)
        costs: list[float] = []
        whole: list[float] = []
        for begin in range(0, WRITES, BATCH):
            texts = [json.dumps(made(number % NODES)).encode() for number in range(begin, begin + BATCH)]
            asked, unasked = (seconds(texts, revision, snapshot, book) for revision in (enforced, without))
            costs.append(asked - unasked)
            whole.append(asked)
        row(f"{what}: {policy}", f"{statistics.median(costs) * 1e6:,.0f} us")
        row("  of a decision that takes", f"{statistics.median(whole) * 1e6:,.0f} us")


def rollout() -> Json:
    """The driver's, which names its plugin."""
    writers = [{"namespace": SPACE, "serviceAccount": PLUGIN, "profile": "NodeLocal"}]
    metadata = {"name": DRIVER}
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": metadata,
        "spec": {"writers": writers},
    }


def plugin(number: int) -> Json:
    """The pod of the driver's plugin on a node."""
    spec = {
        "nodeName": fleet.name(number),
        "serviceAccountName": PLUGIN,
        "containers": [{"name": "main", "image": "x"}],
    }
    metadata = {"namespace": SPACE, "name": f"plugin-{number}", "uid": f"a1090001-0000-4000-8000-{number:012d}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def by_plugin(number: int, obj: Json, old: Json, sub_resource: str = "") -> Json:
    """A write with the token of the plugin's pod on a node."""
    extra = {"node-name": fleet.name(number), "pod-name": f"plugin-{number}", "credential-id": "JTI=bench"}
    raw = raw_request(
        "UPDATE",
        obj,
        old,
        user=f"system:serviceaccount:{SPACE}:{PLUGIN}",
        groups=(ACCOUNTS, f"{ACCOUNTS}:{SPACE}", "system:authenticated"),
        extra={f"{EXTRA}{key}": [value] for key, value in extra.items()},
        sub_resource=sub_resource,
    )
    raw["userInfo"]["uid"] = "bench"
    return reviewed(raw)


def reviewed(raw: Json) -> Json:
    """The AdmissionReview of a raw request."""
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": raw}


def slice_written(number: int) -> Json:
    """The plugin publishes its slice of eight devices anew, one of them changed."""
    old, new = ({each["spec"]["driver"]: each for each in fleet.slices(number)}[DRIVER] for _ in range(2))
    new["spec"]["devices"][0]["attributes"]["uuid"]["string"] += "-new"
    return by_plugin(number, new, old)


def device_told(number: int) -> Json:
    """The plugin tells of its device of a claim."""
    on = number | 1
    old = fleet.claim(on, on)
    told = {"driver": DRIVER, "pool": fleet.name(on), "device": f"gpu-{on % 8}", "data": {"firmware": "1"}}
    return by_plugin(on, {**old, "status": {**old["status"], "devices": [told]}}, old, "status")


def token_asked(number: int) -> Json:
    """The kubelet asks for the token of the plugin's pod."""
    pod = plugin(number)["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"namespace": SPACE, "name": PLUGIN},
        "spec": {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": bound},
    }
    user = f"system:node:{fleet.name(number)}"
    return reviewed(raw_request("CREATE", asked, user=user, groups=("system:nodes", "system:authenticated")))


KINDS: dict[str, tuple[str, Callable[[int], Json]]] = {
    "slice-writers": ("slice of 8 devices", slice_written),
    "claim-writers": ("device status", device_told),
    "token-writers": ("token of a driver's account", token_asked),
}


if __name__ == "__main__":
    main()
