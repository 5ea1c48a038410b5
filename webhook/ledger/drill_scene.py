"""The scene of a drill: a ledger that goes on from the objects of a cluster by events that never happened there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from webhook.facts.matching import device_applies, target_nodes
from webhook.facts.node_offers import Holdings, Offer, node_offers
from webhook.facts.pool_survey import current
from webhook.facts.pools import allocation_pool_problems
from webhook.facts.rollout import allocation_rollout_problems
from webhook.facts.times import stamp
from webhook.kube.claims import DeviceRequest, read_claim
from webhook.kube.finding import Finding
from webhook.kube.node_ledger import BookedCharge
from webhook.kube.quantity import canonical
from webhook.kube.raw import Json, mapping, text
from webhook.kube.release import Release
from webhook.kube.resource import Device, Slice, entry_json
from webhook.kube.resource_version import version
from webhook.kube.rollout import API_VERSION
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.charges import Difference
from webhook.ledger.events import Event, Place, event_of
from webhook.ledger.export import Export, export_json, read_export
from webhook.ledger.fold import apply, fold
from webhook.ledger.replay import replay
from webhook.ledger.statement import compared, statement

NAMESPACE = "allocguard-drill"
_REQUEST = "drill"
# What somebody has allocated is later than what it was allocated by, where nobody says when anything was written.
_LATER = ("ResourceClaim", "Pod")


class Pool(Struct, frozen=True):
    """A pool of the driver as seen from ``node``, to which it belongs where it is ``own``; ``device`` has a cost."""

    name: str
    node: str
    own: bool
    device: str


class Scene:
    """Begins with ``objects``, raw as an export holds them (:func:`webhook.ledger.export.kept_objects`), at ``begins``.

    Raises ValueError for an object without a name, or of a kind that no account depends on.
    """

    def __init__(self, driver: str, objects: Iterable[Json], release: Release, begins: datetime) -> None:
        self.driver, self.release, self.begins = driver, release, begins
        self.objects = tuple(_versioned(obj) for obj in objects)
        history = [event_of(obj, begins) for obj in self.objects]
        self.events: list[Event] = []
        self._ledger = fold(history, release)
        self._raw: dict[Place, Json] = {event.place: obj for event, obj in zip(history, self.objects, strict=True)}
        self._version = max((version(event.resource_version) for event in history), default=0)
        self._book = Book()
        self._made = 0

    @property
    def snapshot(self) -> Snapshot:
        """What there is now, with what is booked."""
        return self._ledger.snapshot

    @property
    def now(self) -> datetime:
        """The time now: every event takes a millisecond, so that nothing gets old by it."""
        return self.begins + timedelta(milliseconds=len(self.events))

    def put(self, obj: Json) -> None:
        """``obj`` is made or changed."""
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        metadata["managedFields"] = [{"time": stamp(self.now)}]
        if (obj["kind"], text(metadata.get("namespace")), metadata["name"]) not in self._raw:
            metadata.setdefault("creationTimestamp", stamp(self.now))
        self._happen({**obj, "metadata": metadata})

    def delete(self, obj: Json) -> None:
        """``obj`` is gone."""
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        self._happen({**obj, "metadata": metadata}, gone=True)

    def _happen(self, obj: Json, gone: bool = False) -> None:
        event = event_of(obj, self.now, gone)
        self.events.append(event)
        self._ledger, _ = apply(self._ledger, event)
        if gone:
            self._raw.pop(event.place, None)
        else:
            self._raw[event.place] = obj

    def node(self, name: str) -> Json:
        """The raw Node."""
        return self._raw["Node", "", name]

    def slices(self, pool: Pool) -> list[Json]:
        """The raw slices of the pool, by name."""
        return [self._raw["ResourceSlice", "", item.name] for item in self.snapshot.pools.get(self._key(pool), ())]

    def pools(self) -> Iterator[Pool]:
        """The driver's pools with a device that costs something, by name. One whose slices belong to several nodes is
        none of a node, and is looked at from the first of them.
        """
        names = {self.snapshot.slices[name].pool for name in self.snapshot.mapped_slices.get(self.driver, ())}
        for name in sorted(names):
            items = self.snapshot.pools[self.driver, name]
            own = len({item.node for item in items}) == 1 and bool(items[0].node)
            found = next(filter(None, (self._seen(item) for item in items)), None)
            if found is not None:
                yield Pool(name, found[0], own, found[1].name)

    def _seen(self, item: Slice) -> tuple[str, Device] | None:
        """A known node and a device that costs it something."""
        for device in item.devices:
            if device.mapped:
                apart = item.nodes.get("perDeviceNodeSelection") is True
                named = text(device.nodes.get("nodeName")) if apart else item.node
                node = next(target_nodes(named, device.nodes if apart else item.nodes, self.snapshot), None)
                if node is not None and device_applies(item, device, node.name, self.snapshot):
                    return node.name, device
        return None

    def digests(self, pool: Pool) -> frozenset[str]:
        """The mapping digests of the pool."""
        return current(self.snapshot, self.driver, pool.name, pool.node).digests

    def refusals(self, pool: Pool) -> list[Finding]:
        """Why a new claim gets nothing of the pool now, whatever is free of it; empty when it may."""
        row = {"request": _REQUEST, "driver": self.driver, "pool": pool.name, "device": pool.device}
        claim = read_claim(self._claim("new", pool, row))
        found = allocation_rollout_problems(claim, self.snapshot, self.now)
        found += allocation_pool_problems(claim, self.snapshot, self.now)
        return [each for each in found if each.severity == "error"]

    def charges(self, pools: Iterable[Pool]) -> list[BookedCharge]:
        """What is booked for devices of the pools, in order of nodes and claims."""
        nodes: dict[str, set[str]] = {}
        for pool in pools:
            nodes.setdefault(pool.node, set()).add(pool.name)
        return [
            row
            for node, names in sorted(nodes.items())
            if (ledger := self.snapshot.ledgers.get(node)) is not None
            for row in ledger.charges
            if row.driver == self.driver and row.pool in names
        ]

    def occupy(self, pool: Pool) -> bool:
        """Have a bound pod's claim hold a device of the pool that is free; whether there is one."""
        everything = ({"operator": "Exists"},)
        selector = (f'device.driver == "{self.driver}"',)
        request = DeviceRequest(_REQUEST, "requests[0]", "", "ExactCount", 1, False, selector, {}, everything)
        found = node_offers(request, self.snapshot, pool.node, Holdings(self.snapshot, frozenset()), None)
        offer = next((each for each in found.offers if each.slice.pool == pool.name and each.amounts), None)
        if offer is None:
            return False
        self._made += 1
        name = f"drill-{self._made}"
        row: Json = {"request": _REQUEST, "driver": self.driver, "pool": pool.name, "device": offer.device.name}
        if offer.consumed is not None:
            row["consumedCapacity"] = {key: canonical(amount) for key, amount in offer.consumed.items()}
            row["shareID"] = f"{NAMESPACE}-{name}"
        pod = self._pod(name, pool, offer)
        self.put(pod)
        self.put(self._claim(name, pool, row, pod))
        return True

    def _claim(self, name: str, pool: Pool, row: Json, pod: Json | None = None) -> Json:
        where = [{"key": "metadata.name", "operator": "In", "values": [pool.node]}]
        status: Json = {
            "allocation": {
                "devices": {"results": [row]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": where}]},
                "allocationTimestamp": stamp(self.now),
            }
        }
        if pod is not None:
            metadata = pod["metadata"]
            status["reservedFor"] = [{"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"namespace": NAMESPACE, "name": name, "uid": f"{NAMESPACE}-{name}"},
            "spec": {"devices": {"requests": [{"name": _REQUEST, "exactly": {"deviceClassName": _REQUEST}}]}},
            "status": status,
        }

    def _pod(self, name: str, pool: Pool, offer: Offer) -> Json:
        entry = entry_json(name, ["main"], offer.amounts, self.release.minor)
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": NAMESPACE, "name": name, "uid": f"{NAMESPACE}-pod-{name}"},
            "spec": {
                "nodeName": pool.node,
                "containers": [{"name": "main", "resources": {"claims": [{"name": _REQUEST}]}}],
                "resourceClaims": [{"name": _REQUEST, "resourceClaimName": name}],
            },
            "status": {"phase": "Running", "nodeAllocatableResourceClaimStatuses": [entry]},
        }

    def give_back(self, row: BookedCharge) -> None:
        """The pods of the claim that ``row`` is charged for end, then the claim is released."""
        claim = self.snapshot.claims_by_uid[row.claim_uid]
        for holder in claim.reserved_for:
            pod = self._raw.get(("Pod", claim.namespace, holder.name))
            if pod is not None:
                self.put({**pod, "status": {**mapping(pod.get("status")), "phase": "Succeeded"}})
        self.put({**self._raw["ResourceClaim", claim.namespace, claim.name], "status": {}})

    def rollout(self, **changes: Json | None) -> None:
        """The operator writes these fields of the spec of the driver's DriverRollout, or takes them out (None)."""
        new: Json = {"apiVersion": API_VERSION, "kind": "DriverRollout", "metadata": {"name": self.driver}}
        known = self._raw.get(("DriverRollout", "", self.driver), new)
        spec = {**mapping(known.get("spec")), **changes}
        self.put({**known, "spec": {name: value for name, value in spec.items() if value is not None}})

    def republish(self, slices: Sequence[Json], generation: int, tag: str) -> Iterator[Json]:
        """The driver publishes ``slices`` anew, names and UIDs ending in ``tag``; gives each when it is there."""
        for obj in slices:
            metadata = {name: part for name, part in obj["metadata"].items() if name != "creationTimestamp"}
            metadata |= {"name": f"{metadata['name']}-{tag}", "uid": f"{text(metadata.get('uid'))}-{tag}"}
            spec = {**obj["spec"], "pool": {**mapping(obj["spec"].get("pool")), "generation": generation}}
            made = {**obj, "metadata": metadata, "spec": spec}
            self.put(made)
            yield made

    def said(self, nodes: Collection[str]) -> Json:
        """The accounts of the nodes and their zones, the charges and the pod statuses there."""
        return statement(self._book, self.snapshot, nodes)

    def replayed(self) -> list[Difference]:
        """What does not come out again of the export of everything so far."""
        said = statement(self._book, self.snapshot)
        export = Export(self.now, self.release, self.begins, self.objects, tuple(self.events), said)
        return [*replay(read_export(export_json(export))).differences]

    def _key(self, pool: Pool) -> tuple[str, str]:
        return (self.driver, pool.name)


def differences(before: Json, after: Json) -> list[Difference]:
    """What of :meth:`Scene.said` is another now."""
    return compared(before, after, ("before", "now"))


def charged(said: Json) -> Json:
    """What :meth:`Scene.said` says is charged: without what zones have, which slices tell that come and go."""
    return {**said, "nodes": [{**node, "zones": [*_charged_zones(node["zones"])]} for node in said["nodes"]]}


def _charged_zones(zones: Iterable[Json]) -> Iterator[Json]:
    for zone in zones:
        held = {
            name: {part: amount[part] for part in ("claims", "reserved")}
            for name, amount in zone["resources"].items()
            if (amount["claims"], amount["reserved"]) != ("0", "0")
        }
        if held:
            yield {"zone": zone["zone"], "resources": held}


def _versioned(obj: Json) -> Json:
    metadata = mapping(obj.get("metadata"))
    if version(text(metadata.get("resourceVersion"))) >= 0:
        return obj
    given = "2" if obj.get("kind") in _LATER else "1"
    return {**obj, "metadata": {**metadata, "resourceVersion": given}}
