"""Whom a role is for: the profiles and drivers by which it is judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct

from webhook.facts.rbac import MOST_BINDINGS, collectors
from webhook.kube.rbac import ACCOUNT, Role, RoleBinding
from webhook.kube.rollout import PROFILES, SEVERAL_NODES
from webhook.kube.snapshot import Key, Snapshot

NODE_LOCAL, MULTI_NODE, ALLOCATOR = "NodeLocal", "MultiNode", "Allocator"

# Subjects of a role's bindings that one write of the role looks at; the others are looked at by themselves, in a sweep.
MOST_SUBJECTS = 1024
# Drivers that the annotations of a role may name.
MOST_DRIVERS = 64
# Characters of the longest names: DNS subdomains.
LONGEST = 253


class Holder(Struct, frozen=True):
    """Somebody who writes for drivers. ``profiles`` are by driver; ``profile`` is that of a role which names no driver.
    ``account`` (namespace, name) is empty where nobody is bound yet.
    """

    profiles: Mapping[str, str] = {}
    profile: str = ""
    account: Key = ("", "")

    @property
    def drivers(self) -> tuple[str, ...]:
        """The drivers whose devices it publishes and reports on, sorted."""
        return tuple(sorted(name for name, profile in self.profiles.items() if profile != ALLOCATOR))

    @property
    def all_profiles(self) -> frozenset[str]:
        """Every profile that it has."""
        return frozenset({*self.profiles.values(), self.profile} - {""})

    @property
    def allocates(self) -> bool:
        """Whether it may allocate."""
        return ALLOCATOR in self.all_profiles

    @property
    def drives(self) -> bool:
        """Whether it is a driver's, and not only an allocator."""
        return bool(self.all_profiles - {ALLOCATOR})

    @property
    def proxy(self) -> bool:
        """Whether it stands for several drivers on any node, each of them named."""
        return self.all_profiles <= SEVERAL_NODES and len(self.profiles) > 1

    @property
    def told(self) -> str:
        """How messages call it: ``a NodeLocal writer of gpu.example.com``."""
        kinds = " and ".join(each for each in PROFILES if each in self.all_profiles)
        writer = f"an {kinds} writer" if kinds.startswith(ALLOCATOR) else f"a {kinds} writer"
        return f"{writer} of {listed(self.profiles)}" if self.profiles else writer


def listed(names: Iterable[str], most: int = 3) -> str:
    """``a, b, c and 4 more``, sorted, each once; one that is longer than any name may be is cut."""
    ordered = sorted(set(names))
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    shown = (name if len(name) <= LONGEST else f"{name[:LONGEST]}…" for name in ordered[:most])
    return ", ".join(shown) + more


def annotated(role: Role) -> Holder | None:
    """Whom the annotations of ``role`` say that it is for. A profile that there is not counts as the narrowest one, and
    so does none where a driver is named.
    """
    if not (role.profile or role.drivers):
        return None
    profile = role.profile if role.profile in PROFILES else NODE_LOCAL
    return Holder(dict.fromkeys(role.drivers[:MOST_DRIVERS], profile), profile)


def account_holder(account: Key, snapshot: Snapshot) -> Holder | None:
    """The ServiceAccount (namespace, name) as DriverRollouts name it; None where none does."""
    profiles = snapshot.writers.get(account)
    return Holder(profiles, "", account) if profiles else None


def holders(role: Role, snapshot: Snapshot) -> tuple[Holder, ...]:
    """Whom ``role`` is for: the ServiceAccounts that have it, as DriverRollouts name them and as its annotations say;
    where nobody has it, whom its annotations say it is for.
    """
    said = annotated(role)
    found: list[Holder] = []
    for account in bound_accounts(bindings_of(role, snapshot)):
        named = account_holder(account, snapshot)
        found += [named] if named is not None else []
        found += [Holder(said.profiles, said.profile, account)] if said is not None else []
    return tuple(found) or (() if said is None else (said,))


def bound_accounts(bindings: Iterable[RoleBinding], every: bool = False) -> list[Key]:
    """The ServiceAccounts (namespace, name) among the subjects of ``bindings``, sorted: of ``every`` subject, or of the
    first ``MOST_SUBJECTS``.
    """
    subjects = islice((each for binding in bindings for each in binding.subjects), None if every else MOST_SUBJECTS)
    return sorted({(each.namespace, each.name) for each in subjects if each.kind == ACCOUNT})


def bindings_of(role: Role, snapshot: Snapshot) -> Iterator[RoleBinding]:
    """The bindings of ``role``, then those of the roles that have its rules too; at most ``MOST_BINDINGS``."""
    keys = (
        key for each in (role, *collectors(role, snapshot)) for key in snapshot.role_bindings.get(each.reference, ())
    )
    for key in islice(keys, MOST_BINDINGS):
        yield snapshot.bindings[key]
