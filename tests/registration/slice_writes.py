"""Writes of slices by everybody whom the rules about writers tell apart: what policies of the API server and our own
one have to agree on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.facts.writers import CONTROLLERS, NODE_EXTRA, POD_EXTRA
from webhook.kube.admission import Request, raw_request, read_request
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.policy.compile import compile_files
from webhook.policy.revision import CompiledPolicy, Revision
from webhook.store.policies import shipped

Json = dict[str, Any]
NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
FINALIZER = "twin.example/wait"
# Writes that leave the spec alone.
METADATA: dict[str, Json] = {
    "labels": {"labels": {"a": "b"}},
    "owner": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n9", "uid": "n9"}]},
    "finalizer": {"finalizers": [FINALIZER]},
    "left": {"finalizers": []},
}
KUBELETS, ACCOUNTS = "system:nodes", "system:serviceaccounts"
# Where the devices of a slice can be used: the forms that a slice may have.
_N1 = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
SHAPES: dict[str, Json] = {
    "n1": {"nodeName": "n1"},
    "n2": {"nodeName": "n2"},
    "all": {"allNodes": True},
    "chosen": {"nodeSelector": _N1},
    "each": {"perDeviceNodeSelection": True},
}


@dataclass(frozen=True)
class Actor:
    """Who writes."""

    user: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.user} {' '.join(self.groups)} {dict(self.extra)}"


@dataclass(frozen=True)
class Write:
    """A write of a slice of ``driver`` in the form ``new``, over or of one in the form ``old``. ``how`` says what else
    is special: only ``labels``, the ``owner`` or a ``finalizer`` change, it is deleted with a ``collection``, or was
    before and is ``leaving``; ``left`` lets it go.
    """

    operation: str
    driver: str
    old: str = ""
    new: str = ""
    how: str = ""

    def objects(self) -> tuple[Json | None, Json | None]:
        """The object that is written, and the one that is there."""
        old = slice_of(self.driver, self.old, leaving=self.how in ("leaving", "left")) if self.old else None
        if not self.new:
            return None, old
        if old is None:
            return slice_of(self.driver, self.new), None
        if self.how in METADATA:
            return {**old, "metadata": {**old["metadata"], **METADATA[self.how]}}, old
        spec = {**slice_of(self.driver, self.new, "e")["spec"], "pool": old["spec"]["pool"]}
        return {**old, "spec": spec}, old

    def request(self, actor: Actor) -> Request:
        """The request that a webhook gets of it."""
        extra = {key: list(values) for key, values in actor.extra.items()}
        raw = raw_request(self.operation, *self.objects(), user=actor.user, groups=actor.groups, extra=extra)
        if self.how == "collection":
            raw["name"] = ""
        return read_request(raw)


def account(name: str, *nodes: str, namespace: str = "acme", pod: bool = False) -> Actor:
    """An account with a token that names ``nodes``, or with ``pod`` a pod alone."""
    extra: dict[str, tuple[str, ...]] = {NODE_EXTRA: nodes} if nodes else {}
    if pod:
        extra[POD_EXTRA] = ("p",)
    return Actor(f"system:serviceaccount:{namespace}:{name}", (ACCOUNTS, f"{ACCOUNTS}:{namespace}"), extra)


def actors() -> list[Actor]:
    """Everybody whom the rules tell apart, and who looks like one of them."""
    on_n1 = {NODE_EXTRA: ("n1",)}
    found = [
        Actor("admin", ("system:masters",)),
        Actor("system:apiserver", ("system:masters",)),
        Actor("fire-fighter"),
        Actor("jane", ("fire-brigade",)),
        Actor("jane", ("developers",)),
        Actor("jane", ("developers",), on_n1),
        Actor("system:kube-scheduler"),
        Actor("side-scheduler"),
        Actor("freer"),
        *(Actor(user, (ACCOUNTS,)) for user in CONTROLLERS),
        Actor("system:serviceaccount:kube-system:deployment-controller", (ACCOUNTS,)),
        Actor("system:serviceaccount:other:generic-garbage-collector", (ACCOUNTS,)),
        Actor("system:node:n1", (KUBELETS,)),
        Actor("system:node:n2", (KUBELETS,)),
        Actor("system:node:n1"),
        Actor("system:node:", (KUBELETS,)),
        Actor("n1", (KUBELETS,)),
        Actor("system:node:n2", (KUBELETS,), on_n1),
        # Names that look like an account's.
        Actor("system:serviceaccount:acme:gpu-plugin:x", (), on_n1),
        Actor("system:serviceaccount:acme:", (), on_n1),
        Actor("system:serviceaccount::gpu-plugin", (), on_n1),
        Actor("acme:gpu-plugin", (), on_n1),
        Actor("System:ServiceAccount:acme:gpu-plugin", (), on_n1),
    ]
    for name in ("gpu-plugin", "fabric", "allocator", "publisher", "nic-plugin", "both", "twice", "from-params", "odd"):
        found += [account(name), account(name, "n1")]
    found += [
        account("gpu-plugin", "n2"),
        account("gpu-plugin", "n1", "n2"),
        account("gpu-plugin", "n1", "n1"),
        account("gpu-plugin", pod=True),
        account("gpu-plugin", "N1"),
        account("gpu-plugin", "n 1"),
        account("gpu-plugin", "n1", namespace="elsewhere"),
        account("stranger"),
        account("stranger", "n1"),
        account("stranger", "n2"),
        account("stranger", "not a name"),
        account("stranger", "n1", "n2"),
        account("side", "n1"),
    ]
    return found


def writers(*named: tuple[str, str]) -> list[Json]:
    """Writers of a driver, by account and profile."""
    return [{"namespace": "acme", "serviceAccount": name, "profile": profile} for name, profile in named]


def slice_of(driver: str, shape: str, device: str = "d", leaving: bool = False) -> Json:
    """A slice of ``driver`` in the form ``shape``, with one device; ``leaving`` only waits for its finalizer."""
    name = f"{driver}-{shape}"
    metadata: Json = {"name": name}
    if leaving:
        name += "-leaving"
        metadata = {"name": name, "finalizers": [FINALIZER], "deletionTimestamp": "2026-11-20T08:00:00Z"}
    per_device = {"allNodes": True} if shape == "each" else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": {
            "driver": driver,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": device, **per_device}],
            **SHAPES[shape],
        },
    }


class World:
    """Five ``drivers``: one whose writers a DriverRollout and the params name, one of a DriverRollout alone, one of the
    params alone, one with a DriverRollout that names nobody, and one of which nobody has heard.
    """

    def __init__(self, *drivers: str) -> None:
        self.drivers = gpu, fabric, nic, bare, _ = drivers
        named = {
            gpu: writers(
                ("gpu-plugin", "NodeLocal"),
                ("allocator", "Allocator"),
                ("publisher", "AnyNode"),
                ("both", "NodeLocal"),
                ("twice", "NodeLocal"),
                ("twice", "MultiNode"),
                ("side", "NodeLocal"),
                ("odd", "Unheard-of"),
            ),
            fabric: writers(("fabric", "MultiNode"), ("both", "MultiNode")),
            bare: [],
        }
        self.snapshot = Snapshot()
        for driver, rows in named.items():
            self.snapshot = self.snapshot.put(rollout(driver, rows))
        self.policy = shipped_with(
            {
                "schedulers": ["system:kube-scheduler", "side-scheduler", "system:serviceaccount:acme:side"],
                "allocators": ["freer"],
                "breakGlass": {"users": ["fire-fighter"], "groups": ["fire-brigade"]},
                "drivers": {
                    nic: writers(("nic-plugin", "NodeLocal")),
                    gpu: writers(("from-params", "NodeLocal"), ("gpu-plugin", "MultiNode")),
                },
            }
        )

    def writes(self) -> Iterator[Write]:
        """Every write of every driver's slices, each form turned into each other one, too, which an API server takes
        only of those that name no node.
        """
        for driver in self.drivers:
            for shape in SHAPES:
                yield Write("CREATE", driver, new=shape)
                yield Write("DELETE", driver, old=shape)
                yield Write("DELETE", driver, old=shape, how="collection")
                yield Write("UPDATE", driver, shape, shape, how="leaving")
                for how in METADATA:
                    yield Write("UPDATE", driver, shape, shape, how=how)
            for old, new in product(SHAPES, SHAPES):
                yield Write("UPDATE", driver, old, new)


def rollout(driver: str, rows: list[Json]) -> Json:
    """A DriverRollout that names writers."""
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": driver},
        "spec": {"stage": "General", "writers": rows},
    }


def shipped_with(params: Json) -> CompiledPolicy:
    """The shipped policy about writers of slices, with these params."""
    document = yaml.safe_load((Path(shipped()) / "slice-writers.yaml").read_text())
    document["spec"]["params"] = params
    [compiled] = compile_files({"slice-writers.yaml": yaml.safe_dump(document).encode()}).policies
    return compiled


def judged(request: Request, revision: Revision, snapshot: Snapshot) -> tuple[str, set[str]]:
    """The verdict of ``revision`` (allow, warn or deny), and the rules that refuse or warn."""
    verdict = decide(request, "validate", revision, snapshot, Book(), NOW)
    assert not verdict.errors
    answer = apply(verdict)
    rules = {each.finding.rule for each in verdict.judged if each.finding.severity != "info"}
    return ("deny" if not answer.allowed else "warn" if answer.warnings else "allow"), rules
