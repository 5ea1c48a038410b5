"""The policies that ``policy export-vap`` prints and our own one say the same about every write of a slice.

The API server judges dry runs of somebody whom the administrator stands for; we judge the same user and objects on
files. What an API server refuses before it asks a policy, as another node's kubelet or a node name that changes, has
nothing to be compared with: ``tests/registration/test_vap.py`` has that, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import NamedTuple

from tests.cases.test_writers import MATRIX, SNAPSHOT, revision, user_of
from tests.e2e.client import ApiError, Client, Json
from tests.e2e.cluster import Cluster
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from tests.registration.slice_writes import SHAPES, Actor, World, Write, actors, judged, slice_of
from webhook.facts.writers import NODE_EXTRA
from webhook.policy.fieldpath import changed
from webhook.policy.revision import revision_of
from webhook.registration.vap import BINDING, LABELS, POLICY, slice_policies

BASE = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {POLICY: "validatingadmissionpolicies", BINDING: "validatingadmissionpolicybindings"}
SLICES = path("ResourceSlice")
# What refuses before a policy is asked.
EARLIER = ("requesting node", "could not determine node", "field is immutable")


class Asked(NamedTuple):
    """A write of ``who`` (user, groups, extra), and our verdict with the rules that say so."""

    who: tuple[str, tuple[str, ...], Mapping[str, Sequence[str]]]
    operation: str
    new: Json | None
    old: Json | None = None
    collection: bool = False
    verdict: str = ""
    rules: Collection[str] = ()


def answered(client: Client, asked: Asked) -> tuple[str, str]:
    """The API server's verdict (allow, warn or deny; ``before`` where no policy was asked), and what it says."""
    where = path("ResourceSlice", asked.old["metadata"]["name"]) if asked.old is not None else ""
    try:
        if asked.new is None and asked.collection:
            client.delete(SLICES, fieldSelector=f"metadata.name={where.rpartition('/')[2]}", dryRun="All")
        elif asked.new is None:
            client.delete(where, dryRun="All")
        elif asked.old is None:
            named = {**asked.new, "metadata": {"name": f"{asked.new['metadata']['name']}-new"}}
            client.create(SLICES, named, dryRun="All")
        else:
            client.update(where, asked.new, dryRun="All")
    except ApiError as error:
        return ("deny" if POLICY in error.message else "before"), error.message
    told = " ".join(client.warnings)
    return ("warn" if told else "allow"), told


class Twin:
    """Puts the exported policies ``objects`` into force where there are the slices ``stored``, asks the API server, and
    collects where it differs from us. ``named`` are the drivers whose writers are named.
    """

    def __init__(self, cluster: Cluster, stored: Iterable[Json], objects: list[Json], named: Iterable[str]) -> None:
        self.cluster, self.group = cluster, cluster.name("twin-writers")
        self.counted: Counter[str] = Counter()
        self.differences: list[str] = []
        self._leaving: list[str] = []
        admin, metadata = cluster.as_admin, {"name": self.group}
        rules = [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["*"]}]
        api = {"apiGroup": "rbac.authorization.k8s.io", "name": self.group}
        bound = {"roleRef": {"kind": "ClusterRole", **api}, "subjects": [{"kind": "Group", **api}]}
        admin.create(path("ClusterRole"), {"metadata": metadata, "rules": rules})
        admin.create(path("ClusterRoleBinding"), {"metadata": metadata, **bound})
        for obj in stored:
            admin.create(SLICES, obj)
            if "finalizers" in obj["metadata"]:
                self._leaving.append(path("ResourceSlice", obj["metadata"]["name"]))
        for where in self._leaving:
            admin.delete(where)
        for obj in objects:
            admin.create(f"{BASE}/{PLURALS[obj['kind']]}", obj)
        eventually(lambda: self._understood(len(objects) // 2))
        for driver in named:
            eventually(lambda driver=driver: self._probe(driver) == "deny")
        eventually(lambda: self._probe(cluster.name("nobody.twin.example")) == "warn")

    def _understood(self, policies: int) -> bool:
        """Whether the API server has looked at every expression, and has nothing to say."""
        selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
        found = self.cluster.as_admin.items(f"{BASE}/{PLURALS[POLICY]}", labelSelector=selector)
        assert len(found) == policies
        return all(each.get("status", {}).get("typeChecking") == {} for each in found)

    def _probe(self, driver: str) -> str:
        """What becomes of a stranger's slice for another node: a policy holds a moment after it is made."""
        extra = {NODE_EXTRA: ["n1"]}
        write = Asked(("system:serviceaccount:twin:probe", (), extra), "CREATE", slice_of(driver, "n2"))
        return answered(self._client(write), write)[0]

    def _client(self, write: Asked) -> Client:
        user, groups, extra = write.who
        more = [(key, value) for key, values in extra.items() for value in values]
        return self.cluster.impersonated(user, *groups, self.group, extra=more)

    def ask(self, writes: Iterable[Asked]) -> None:
        """Compare."""
        for write in writes:
            found, said = answered(self._client(write), write)
            self.counted[found] += 1
            # No exported policy knows the writers of another driver.
            rules = {"slice-by-stranger" if rule == "slice-of-other-driver" else rule for rule in write.rules}
            same = found == write.verdict and (not rules or any(f"slice-writers/{rule}: " in said for rule in rules))
            if not same and not (found == "before" and any(each in said for each in EARLIER)):
                about = f"{write.who} {write.operation} {write.new or write.old}"
                self.differences.append(f"{about}: we {write.verdict} {rules}, the API server {found} {said}")

    def close(self) -> None:
        """Let go what waits for its finalizer."""
        for where in self._leaving:
            self.cluster.as_admin.patch(where, {"metadata": {"finalizers": None}})

    def agree(self) -> None:
        """Fail where they differ, or where nothing was tried."""
        assert not self.differences, "\n".join(self.differences[:20])
        assert set(self.counted) == {"allow", "warn", "deny", "before"}


def asked_live(write: Write) -> bool:
    """Whether to ask an API server: what names a node never comes to name another one, or none, whoever writes; and of
    the forms that name none, one stands for all where the form does not matter.
    """
    if write.how:
        return write.old in ("n1", "n2", "all")
    return write.operation != "UPDATE" or write.old == write.new or not {write.old, write.new} & {"n1", "n2"}


def test_everybody_and_every_write(cluster: Cluster) -> None:
    world = World(*(cluster.name(f"{name}.twin.example") for name in ("gpu", "fabric", "nic", "bare", "unknown")))
    stored = [slice_of(*each, leaving=leaving) for leaving in (False, True) for each in product(world.drivers, SHAPES)]
    policies = slice_policies(world.snapshot.rollouts, world.policy)
    ours = revision_of([world.policy])

    def asked(actor: Actor) -> Iterator[Asked]:
        for write in filter(asked_live, world.writes()):
            new, old = write.objects()
            verdict, rules = judged(write.request(actor), ours, world.snapshot)
            who = actor.user, actor.groups, actor.extra
            yield Asked(who, write.operation, new, old, write.how == "collection", verdict, rules)

    twin = Twin(cluster, stored, policies, world.drivers[:3])
    try:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda actor: twin.ask(asked(actor)), actors()))
    finally:
        twin.close()
    twin.agree()
    assert min(twin.counted.values()) > 100


def test_the_matrix(cluster: Cluster) -> None:
    """The cells about slices of ``tests/cases/writers``, which ``tests/cases/test_writers.py`` proves to be ours."""
    [policy] = [each for each in revision().policies if each.name == "slice-writers"]
    # Who takes a pool over is told by its other slices, which no such policy sees.
    cells = [each for each in MATRIX["cells"] if each["table"] == "slices" and each.get("rule") != "pool-taken-over"]
    writes = {cell["write"]: MATRIX["writes"][cell["write"]] for cell in cells}
    stored = {write["oldObject"] for write in writes.values() if "oldObject" in write}
    named = [driver for driver, rollout in SNAPSHOT.rollouts.items() if rollout.writers]

    def asked(cell: Json) -> Asked:
        write, user = writes[cell["write"]], user_of(cell["actor"])
        old = MATRIX["objects"].get(write.get("oldObject"))
        new = MATRIX["objects"].get(write.get("object"), old)
        new = None if write["operation"] == "DELETE" else changed(new, write.get("set", {}))
        who = user["user"], user["groups"], user.get("extra", {})
        rules = {cell["rule"]} if "rule" in cell else set()
        return Asked(who, write["operation"], new, old, write.get("nameless", False), cell["ours"], rules)

    twin = Twin(
        cluster,
        [MATRIX["objects"][name] for name in sorted(stored)],
        slice_policies(SNAPSHOT.rollouts, policy),
        named,
    )
    twin.ask(map(asked, cells))
    twin.agree()
