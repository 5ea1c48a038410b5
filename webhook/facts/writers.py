"""Who writes: what the guard makes of the user of a review, on which node, and for which drivers."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from webhook.kube.finding import Finding
from webhook.kube.names import NEEDS_DRIVER, driver_name, node_name
from webhook.kube.raw import Json, sequence
from webhook.kube.rollout import ADMINISTRATORS, KUBELET, KUBELETS, PROFILES
from webhook.kube.rollout import Writer as Account
from webhook.kube.snapshot import Key, Snapshot

SERVICE_ACCOUNT = "system:serviceaccount:"
SCHEDULER = "system:kube-scheduler"
API_SERVER = "system:apiserver"
# Stands for each of its controllers where they have no credentials of their own.
CONTROLLER_MANAGER = "system:kube-controller-manager"
# The guard's own deploy/components/free-claims, which takes allocations away, where it is deployed as it is written.
_FREES = "allocguard-free-claims"
FREE_CLAIMS = f"{SERVICE_ACCOUNT}allocguard-system:{_FREES}"
NODE_EXTRA = "authentication.kubernetes.io/node-name"
POD_EXTRA = "authentication.kubernetes.io/pod-name"

Kind = Literal[
    "Administrator",
    "BreakGlass",
    "Scheduler",
    "Allocator",
    "ClaimController",
    "GarbageCollector",
    "NamespaceController",
    "ControllerManager",
    "ApiServer",
    "Kubelet",
    "Driver",
    "Unknown",
    "Nobody",
]
EXEMPT = frozenset({"Administrator", "BreakGlass", "ApiServer", "Nobody"})
COLLECTORS = frozenset({"GarbageCollector", "NamespaceController", "ControllerManager"})
CLAIM_CONTROLLERS = frozenset({"ClaimController", "ControllerManager"})

CONTROLLERS: Mapping[str, Kind] = {
    f"{SERVICE_ACCOUNT}kube-system:resource-claim-controller": "ClaimController",
    f"{SERVICE_ACCOUNT}kube-system:generic-garbage-collector": "GarbageCollector",
    f"{SERVICE_ACCOUNT}kube-system:namespace-controller": "NamespaceController",
    CONTROLLER_MANAGER: "ControllerManager",
}
# How a person who keeps the cluster gets through, in messages.
EMERGENCY = "the user or one of its groups in params.breakGlass if it keeps the cluster"
_NOTHING: Mapping[str, str] = MappingProxyType({})
_PARAMS = ("schedulers", "allocators", "breakGlass", "drivers")
_LISTS = {"schedulers": (SCHEDULER,), "allocators": (FREE_CLAIMS,)}


class WriterParams(Struct, frozen=True):
    """What a policy's ``params`` say about writers: user names of schedulers and of allocators (who set and clear
    allocation and reservedFor of any driver's devices), who may write in an emergency, and accounts that write for
    drivers beside those of the DriverRollouts. ``accounts`` are the latter by (namespace, account): profiles by driver.
    """

    schedulers: frozenset[str] = frozenset(_LISTS["schedulers"])
    allocators: frozenset[str] = frozenset(_LISTS["allocators"])
    break_glass_users: frozenset[str] = frozenset()
    break_glass_groups: frozenset[str] = frozenset()
    drivers: Mapping[str, tuple[Account, ...]] = MappingProxyType({})
    accounts: Mapping[Key, Mapping[str, str]] = MappingProxyType({})

    def __post_init__(self) -> None:
        """Index the accounts of ``drivers``."""
        accounts: dict[Key, dict[str, str]] = {}
        for driver, writers in self.drivers.items():
            for each in writers:
                accounts.setdefault((each.namespace, each.service_account), {}).setdefault(driver, each.profile)
        force_setattr(self, "accounts", accounts)


class Writer(Struct, frozen=True):
    """Who writes. ``kind`` Nobody is a manifest at rest, which has neither user nor groups.

    ``namespace`` and ``service_account`` are those of an account, empty for others. ``profiles`` are what the account
    may do by driver. ``node`` is the one of a kubelet's name or of an account's token; where there is none,
    ``node_problem`` says why of an account or kubelet, as in "a token that …". ``evidence`` is one line on how all that
    is known. ``params`` are those that the writer was judged by.
    """

    kind: Kind
    user: str = ""
    namespace: str = ""
    service_account: str = ""
    profiles: Mapping[str, str] = _NOTHING
    node: str = ""
    node_problem: str = ""
    evidence: str = ""
    params: WriterParams = WriterParams()

    @property
    def exempt(self) -> bool:
        """Whether no writer rule is for this one."""
        return self.kind in EXEMPT

    @property
    def allocates(self) -> bool:
        """Whether this one allocates and reserves devices of any driver."""
        return self.kind == "Scheduler" or self.user in self.params.allocators

    @property
    def shown(self) -> str:
        """The writer as messages name it."""
        return self.user or "an unnamed user"

    @property
    def without_node(self) -> str:
        """How a writer without a node comes to have none, as in "by X, …"."""
        return f"whose {'token' if self.service_account else 'name'} {self.node_problem}"

    @property
    def node_fix(self) -> str:
        """What gives a writer without a node one."""
        if not self.service_account:
            return ""
        return "write with the token of a pod that is on its node, or with one bound to the node"

    def named(self, driver: str, snapshot: Snapshot) -> tuple[Account, ...]:
        """The accounts that write for ``driver``, as its DriverRollout and the params name them."""
        rollout = snapshot.rollouts.get(driver)
        return (*(rollout.writers if rollout is not None else ()), *self.params.drivers.get(driver, ()))


def free_claims(namespace: str) -> str:
    """The user name of the guard's own free-claims beside a guard in ``namespace``."""
    return f"{SERVICE_ACCOUNT}{namespace}:{_FREES}"


def listed(named: Sequence[Account]) -> str:
    """Those who publish devices and report of them as messages list them, the first three, and how many more there are:
    an allocator does neither.
    """
    accounts = [each for each in named if each.profile != "Allocator"]
    rows = [f"{each.namespace}/{each.service_account} ({each.profile})" for each in accounts]
    if not rows:
        return "nobody yet, all that are named are allocators"
    return ", ".join(rows if len(rows) <= 3 else [*rows[:3], f"and {len(rows) - 3} more"])


def account_of(user: str) -> Key | None:
    """Namespace and name of the ServiceAccount that the user name ``user`` stands for; None when it stands for none."""
    if not user.startswith(SERVICE_ACCOUNT):
        return None
    namespace, colon, name = user.removeprefix(SERVICE_ACCOUNT).partition(":")
    return (namespace, name) if namespace and name and colon and ":" not in name else None


def writer_of(
    user: str, groups: Collection[str], extra: Mapping[str, tuple[str, ...]], snapshot: Snapshot, params: WriterParams
) -> Writer:
    """Who the user of a review is, by the first that fits: an exempt one, a part of the cluster, a scheduler, a
    driver's account, an allocator, or somebody unknown.

    What the API server goes by counts: it knows an account by its user name alone, a kubelet by name and group.
    """
    account = account_of(user)
    namespace, name = account or ("", "")
    profiles: Mapping[str, str] = _NOTHING
    node = problem = ""
    if account is not None:
        profiles = {**params.accounts.get(account, _NOTHING), **snapshot.writers.get(account, _NOTHING)}
        node, problem = _token_node(extra)
    elif user.startswith(KUBELET) and KUBELETS in groups:
        node = user.removeprefix(KUBELET)
        if node_name(node):
            node, problem = "", f"ends in {node!r}, which is no node's name"
    kind, evidence = _kind(user, groups, profiles, account, params)
    where = f", on node {node} by its {'token' if account else 'name'}" if node else ""
    return Writer(kind, user, namespace, name, profiles, node, problem, f"{evidence}{where}", params)


def _kind(
    user: str, groups: Collection[str], profiles: Mapping[str, str], account: Key | None, params: WriterParams
) -> tuple[Kind, str]:
    """The kind of the writer and how it is known."""
    if not user and not groups:
        return "Nobody", "nobody: the object is not being written"
    if ADMINISTRATORS in groups:
        return ("ApiServer" if user == API_SERVER else "Administrator"), f"{user} in group {ADMINISTRATORS}"
    if user in params.break_glass_users:
        return "BreakGlass", f"{user} of params.breakGlass.users"
    for group in sorted(params.break_glass_groups.intersection(groups)):
        return "BreakGlass", f"{user} in group {group} of params.breakGlass.groups"
    if user in params.schedulers:
        return "Scheduler", f"{user} of params.schedulers"
    if user in CONTROLLERS:
        return CONTROLLERS[user], f"{user}, part of the control plane"
    if user.startswith(KUBELET) and KUBELETS in groups:
        return "Kubelet", f"{user} in group {KUBELETS}"
    listed = ", ".join(f"{profile} for {driver}" for driver, profile in sorted(profiles.items()))
    if profiles and set(profiles.values()) != {"Allocator"}:
        return "Driver", f"{user}, {listed}"
    if profiles:
        return "Allocator", f"{user}, {listed}"
    if user in params.allocators:
        return "Allocator", f"{user} of params.allocators"
    what = "an account that writes for no driver" if account else "somebody the guard does not know"
    return "Unknown", f"{user or 'an unnamed user'}, {what}"


def _token_node(extra: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    """The one node that a token names, or why there is none."""
    names = extra.get(NODE_EXTRA, ())
    if not names:
        if POD_EXTRA in extra:
            return "", "was made before its pod was on a node, and never names one"
        return "", "names no node: it is bound to neither a pod nor a node"
    if len(names) > 1:
        return "", f"names several nodes: {', '.join(sorted(names))}"
    return ("", f"names {names[0]!r}, which is no node's name") if node_name(names[0]) else (names[0], "")


def read_params(raw: Json) -> tuple[WriterParams, list[Finding]]:
    """What ``params`` of a policy say about writers, and what is wrong with it (``params-invalid``, paths below
    ``params``). Members with other names are the policy's own, unless they are nearly one of these.
    """
    problems = [*_misspelt(raw, _PARAMS, "", strict=False)]
    schedulers = _names(raw, "schedulers", "", problems)
    allocators = _names(raw, "allocators", "", problems)
    given = raw.get("breakGlass")
    glass = given if isinstance(given, dict) else {}
    if given is not None and not isinstance(given, dict):
        problems.append(_bad("breakGlass", "no map", "users and groups"))
    problems += _misspelt(glass, ("users", "groups"), "breakGlass", strict=True)
    users, groups = (_names(glass, name, "breakGlass", problems) for name in ("users", "groups"))
    drivers = _drivers(raw.get("drivers"), problems)
    return WriterParams(
        schedulers=frozenset(_LISTS["schedulers"] if schedulers is None else schedulers),
        allocators=frozenset(_LISTS["allocators"] if allocators is None else allocators),
        break_glass_users=frozenset(users or ()),
        break_glass_groups=frozenset(groups or ()),
        drivers=drivers,
    ), problems


def _bad(path: str, has: str, needs: str, fix: str = "") -> Finding:
    return Finding("params-invalid", path, has, needs, fix)


def _misspelt(fields: Json, known: tuple[str, ...], path: str, strict: bool) -> Iterator[Finding]:
    for name in fields:
        near = difflib.get_close_matches(str(name), known, 1)
        if name not in known and (strict or near):
            fix = f"did you mean {near[0]}?" if near else ""
            yield _bad(f"{path}.{name}" if path else str(name), f"the unknown field {name}", ", ".join(known), fix)


def _names(fields: Json, name: str, path: str, problems: list[Finding]) -> list[str] | None:
    """The list of names ``name``; None where it is not there or wrong."""
    value, where = fields.get(name), f"{path}.{name}" if path else name
    if value is None:
        return None
    if not isinstance(value, list):
        problems.append(_bad(where, "no list", "a list of names"))
        return None
    wrong = [index for index, item in enumerate(value) if not (isinstance(item, str) and item)]
    problems += [_bad(f"{where}[{index}]", repr(value[index]), "a name") for index in wrong]
    return None if wrong else value


def _drivers(value: object, problems: list[Finding]) -> dict[str, tuple[Account, ...]]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        problems.append(_bad("drivers", "no map", "lists of writers by driver"))
        return {}
    found: dict[str, tuple[Account, ...]] = {}
    for driver, rows in value.items():
        path = f"drivers[{driver}]"
        if not isinstance(driver, str) or driver_name(driver):
            problems.append(_bad(path, f"the name {driver}", NEEDS_DRIVER))
        if not isinstance(rows, list):
            problems.append(_bad(path, "no list", "a list of writers: namespace, serviceAccount, profile"))
        read = (_account(row, f"{path}[{index}]", problems) for index, row in enumerate(sequence(rows)))
        found[str(driver)] = tuple(account for account in read if account is not None)
    return found


def _account(row: object, path: str, problems: list[Finding]) -> Account | None:
    if not isinstance(row, dict):
        problems.append(_bad(path, "no map", "namespace, serviceAccount and profile"))
        return None
    before = len(problems)
    problems += _misspelt(row, ("namespace", "serviceAccount", "profile"), path, strict=True)
    for name in ("namespace", "serviceAccount"):
        if not (isinstance(row.get(name), str) and row[name]):
            problems.append(_bad(f"{path}.{name}", f"no {name}", "the ServiceAccount that writes for the driver"))
    profile = row.get("profile", PROFILES[0])
    if profile not in PROFILES:
        problems.append(_bad(f"{path}.profile", repr(profile), f"one of {', '.join(PROFILES)}"))
    return Account(row["namespace"], row["serviceAccount"], profile) if len(problems) == before else None
