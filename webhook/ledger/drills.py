"""Drills: what an operator has to trust in an emergency, done on the ledger of a cluster without touching the cluster.

Every pool that takes claims now takes part, with the claims it has, or with one that is made for the drill. A drill in
which nothing could go wrong has not passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from webhook.kube.raw import Json, integer, mapping
from webhook.kube.release import Release
from webhook.kube.resource import dearer
from webhook.ledger.charges import Difference
from webhook.ledger.drill_scene import Pool, Scene, charged, differences

_MOST_NAMED = 3


class Step(Struct, frozen=True):
    """One thing that has to be so at its moment; ``detail`` tells what was found."""

    what: str
    passed: bool
    detail: str


class DrillResult(Struct, frozen=True):
    """How the drill ``name`` of ``driver`` went; it passed when all of its steps did."""

    name: str
    driver: str
    passed: bool
    steps: tuple[Step, ...]

    @property
    def message(self) -> str:
        """One line for who did not see it: the step that failed, else what it was done on."""
        failed = next((step for step in self.steps if not step.passed), None)
        return f"{failed.what}: {failed.detail}" if failed is not None else self.steps[0].detail


def drill(name: str, driver: str, objects: Iterable[Json], release: Release, now: datetime) -> DrillResult:
    """Run a drill (``Rollback``, ``NodeRestart``, ``DriverUpgrade``) of ``driver`` on ``objects``, raw as an export
    holds them (:func:`webhook.ledger.export.kept_objects`), from ``now`` on. Raises KeyError for another name.
    """
    run = _DRILLS[name]
    scene = Scene(driver, objects, release, now)
    # What is held now is drilled as if it were not; what is acknowledged stays so.
    if (rollout := scene.snapshot.rollouts.get(driver)) is not None and rollout.hold is not None:
        scene.rollout(hold=None)
    pools, begun = _begun(scene, own=name == "NodeRestart")
    steps = [begun, *(run(scene, pools) if begun.passed else ())]
    return DrillResult(name, driver, all(step.passed for step in steps), tuple(steps))


def _begun(scene: Scene, own: bool) -> tuple[list[Pool], Step]:
    """The pools that take part: those that take claims, and have some by now."""
    what = "claims are bound to pools that take new ones"
    known = [pool for pool in scene.pools() if pool.own or not own]
    if not known:
        needs = "a pool with node costs that belongs to a known node" if own else "a pool with node costs"
        return [], Step(what, False, f"has none of {scene.driver}, needs {needs}")
    refused = {pool.name: found[0].message for pool in known if (found := scene.refusals(pool))}
    open_ = [pool for pool in known if pool.name not in refused]
    if not open_:
        return [], Step(what, False, f"0 of {_pools(known)} take claims: {next(iter(refused.values()))}")
    had = {(row.pool) for row in scene.charges(open_)}
    made = sum(scene.occupy(pool) for pool in open_ if pool.name not in had)
    rows = scene.charges(open_)
    charged = {row.pool for row in rows}
    pools = [pool for pool in open_ if pool.name in charged]
    if not pools:
        return [], Step(
            what, False, f"nothing is charged on {_pools(open_)}, and no device that costs anything is free"
        )
    claims = len({row.claim_uid for row in rows})
    detail = f"{claims} {'claims' if claims > 1 else 'claim'} on {len(pools)} of {_pools(known)}"
    return pools, Step(what, True, detail + (f", {made} made for the drill" if made else ""))


def _rollback(scene: Scene, pools: list[Pool]) -> Iterable[Step]:
    first, nodes = pools[0], sorted({pool.node for pool in pools})
    before = charged(scene.said(nodes))
    hold = {"reason": "a drill", "by": "allocguard rollout drill"}
    scene.rollout(hold=hold, resumeAt=None)
    yield _refuse("a hold: no pool takes new claims", scene, pools, "driver-held")
    yield _unchanged("bound claims stay, and stay charged", before, charged(scene.said(nodes)))
    old = scene.digests(first)
    for obj in scene.slices(first):
        spec = obj["spec"]
        devices = [dearer(device, 2) for device in spec.get("devices") or ()]
        pool = {**spec["pool"], "generation": integer(spec["pool"].get("generation")) + 1}
        scene.put({**obj, "spec": {**spec, "pool": pool, "devices": devices}})
    new = scene.digests(first)
    yield _refuse("a changed mapping: its pool waits for it to be acknowledged", scene, [first], "mapping-changed")
    yield _unchanged("what is bound is charged by the mapping it was booked with", before, charged(scene.said(nodes)))
    for digests, what in ((old, "the mapping of before"), (new, "the changed mapping")):
        scene.rollout(resumeAt={"mappingDigests": sorted(digests)})
        yield _only(f"resumed at {what}: pools take claims that have it alone, and no others", scene, pools, digests)
    yield _released(scene, pools)
    yield _replayed(scene)
    scene.rollout(hold=None)
    yield _take("resumed: every pool takes claims again", scene, pools)


def _node_restart(scene: Scene, pools: list[Pool]) -> Iterable[Step]:
    nodes: dict[str, list[Pool]] = {}
    for pool in pools:
        nodes.setdefault(pool.node, []).append(pool)
    wiped, half, whole, unlike = _Tally("wait"), _Tally("wait"), _Tally("take claims"), list[Difference]()
    for node, members in nodes.items():
        before = scene.said([node])
        obj = scene.node(node)
        info = {**mapping(mapping(obj.get("status")).get("nodeInfo")), "bootID": "allocguard-drill"}
        scene.put({**obj, "status": {**mapping(obj.get("status")), "nodeInfo": info}})
        slices = {pool.name: scene.slices(pool) for pool in members}
        for pool in members:
            for each in slices[pool.name]:
                scene.delete(each)
        for pool in members:
            wiped.refused(scene, pool)
        unlike += differences(charged(before), charged(scene.said([node])))
        for pool in members:
            for published, _ in enumerate(scene.republish(slices[pool.name], 1, "boot"), 1):
                if published < len(slices[pool.name]):
                    half.refused(scene, pool)
            whole.taken(scene, pool)
        unlike += differences(before, scene.said([node]))
    yield wiped.step("a node restarts, its slices are wiped: its pools take no new claims")
    if half.count:
        yield half.step("its driver has published a part: the pool still waits")
    yield whole.step("its driver has published everything, from generation 1: the pool takes claims")
    yield _same("the same is charged all the time, and accounts and pod statuses are the same in the end", unlike)
    yield _replayed(scene)


def _driver_upgrade(scene: Scene, pools: list[Pool]) -> Iterable[Step]:
    during, others, after = _Tally("wait"), _Tally("take claims"), _Tally("take claims")
    unlike = list[Difference]()
    for index, pool in enumerate(pools):
        before = scene.said([pool.node])
        slices = scene.slices(pool)
        generation = max(integer(mapping(obj["spec"].get("pool")).get("generation")) for obj in slices) + 1
        for _ in scene.republish(slices, generation, "new"):
            during.refused(scene, pool)
            unlike += differences(charged(before), charged(scene.said([pool.node])))
            if len(pools) > 1:
                others.taken(scene, pools[index - 1])
        for obj in slices:
            scene.delete(obj)
        after.taken(scene, pool)
        unlike += differences(before, scene.said([pool.node]))
    yield during.step("a pool that is published anew takes no new claims")
    if others.count:
        yield others.step("the others take claims meanwhile")
    yield after.step("a pool that is whole again takes claims")
    yield _same("the same is charged all the time, and accounts and pod statuses are the same in the end", unlike)
    yield _replayed(scene)


_DRILLS: dict[str, Callable[[Scene, list[Pool]], Iterable[Step]]] = {
    "Rollback": _rollback,
    "NodeRestart": _node_restart,
    "DriverUpgrade": _driver_upgrade,
}


class _Tally:
    """How many of the pools that were looked at did as they should (``wanted``), and which did not."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self.count = 0
        self._rules: dict[str, None] = {}
        self._wrong: list[str] = []

    def refused(self, scene: Scene, pool: Pool, rule: str = "") -> None:
        """The pool should take no new claim, by ``rule`` where one is given."""
        self.count += 1
        found = [each.rule for each in scene.refusals(pool)]
        self._rules.update(dict.fromkeys([rule] if rule else found))
        if not found or rule not in ("", *found):
            self._wrong.append(f"{pool.name} {f'refuses by {found[0]}' if found else 'takes claims'}")

    def taken(self, scene: Scene, pool: Pool) -> None:
        """The pool should take a new claim."""
        self.count += 1
        if found := scene.refusals(pool):
            self._wrong.append(f"{pool.name} {found[0].message}")

    def step(self, what: str) -> Step:
        """What came out."""
        said = f"{self.count - len(self._wrong)} of {self.count} {self._wanted}"
        if self._rules:
            said += f" ({', '.join(self._rules)})"
        return Step(what, not self._wrong, said + _listed(self._wrong))


def _refuse(what: str, scene: Scene, pools: Sequence[Pool], rule: str) -> Step:
    tally = _Tally("refuse")
    for pool in pools:
        tally.refused(scene, pool, rule)
    return tally.step(what)


def _take(what: str, scene: Scene, pools: Sequence[Pool]) -> Step:
    tally = _Tally("take claims")
    for pool in pools:
        tally.taken(scene, pool)
    return tally.step(what)


def _only(what: str, scene: Scene, pools: Sequence[Pool], digests: frozenset[str]) -> Step:
    tally = _Tally("as they should")
    for pool in pools:
        if scene.digests(pool) <= digests:
            tally.taken(scene, pool)
        else:
            tally.refused(scene, pool, "driver-held")
    return tally.step(what)


def _released(scene: Scene, pools: Sequence[Pool]) -> Step:
    before = scene.charges(pools)
    row = before[-1]
    scene.give_back(row)
    wanted = [each for each in before if each.claim_uid != row.claim_uid]
    after = scene.charges(pools)
    detail = f"claim {row.namespace}/{row.name} is released; of {len(before)} charges {len(after)} are left"
    return Step("releases go on", after == wanted, f"{detail}, should be {len(wanted)}" if after != wanted else detail)


def _unchanged(what: str, before: Json, after: Json) -> Step:
    return _same(what, differences(before, after))


def _replayed(scene: Scene) -> Step:
    return _same("everything comes out again of its export", scene.replayed())


def _same(what: str, found: Sequence[Difference]) -> Step:
    if not found:
        return Step(what, True, "no difference")
    told = [f"{each.kind} {_name(each)}: {each.finding.message}" for each in found]
    return Step(what, False, f"{len(found)} difference{'s' if len(found) > 1 else ''}{_listed(told)}")


def _name(each: Difference) -> str:
    return "/".join(filter(None, (each.namespace, each.name)))


def _listed(wrong: Sequence[str]) -> str:
    if not wrong:
        return ""
    more = f"; and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
    return f": {'; '.join(wrong[:_MOST_NAMED])}{more}"


def _pools(pools: Sequence[Pool]) -> str:
    return "1 pool" if len(pools) == 1 else f"{len(pools)} pools"
