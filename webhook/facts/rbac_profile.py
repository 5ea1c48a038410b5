"""Whom a role is for: the profiles and drivers by which it is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from msgspec import Struct

from webhook.kube.rbac import ACCOUNT, Role, RoleBinding
from webhook.kube.rollout import PROFILES
from webhook.kube.snapshot import Key, Snapshot

NODE_LOCAL, MULTI_NODE, ALLOCATOR = "NodeLocal", "MultiNode", "Allocator"

# Bindings of a role, and subjects of them, that one write of the role looks at: it must cost the same in any cluster.
# The others are looked at by themselves, in a sweep.
MOST_BINDINGS, MOST_SUBJECTS = 256, 1024


class Holder(Struct, frozen=True):
    """Somebody who writes for drivers. ``profiles`` are by driver; ``profile`` is that of a role which names no driver.
    ``account`` (namespace, name) is empty where only the annotations of a role say so.
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
    def name(self) -> str:
        """How messages call it."""
        return f"ServiceAccount {'/'.join(self.account)}" if self.account[1] else "the role's annotations"


def annotated(role: Role) -> Holder | None:
    """Whom the annotations of ``role`` say that it is for. A profile that there is not counts as the narrowest one, and
    so does none where a driver is named.
    """
    if not (role.profile or role.drivers):
        return None
    profile = role.profile if role.profile in PROFILES else NODE_LOCAL
    return Holder(dict.fromkeys(role.drivers, profile), profile)


def account_holder(account: Key, snapshot: Snapshot) -> Holder | None:
    """The ServiceAccount (namespace, name) as DriverRollouts name it; None where none does."""
    profiles = snapshot.writers.get(account)
    return Holder(profiles, "", account) if profiles else None


def holders(role: Role, snapshot: Snapshot) -> tuple[Holder, ...]:
    """Whom ``role`` is for: as its annotations say, and the accounts of DriverRollouts that have it."""
    found = list(_bound(role, snapshot))
    said = annotated(role)
    return tuple(found) if said is None else (said, *found)


def _bound(role: Role, snapshot: Snapshot) -> Iterator[Holder]:
    accounts: dict[Key, None] = {}
    looked = 0
    for binding in bindings_of(role, snapshot):
        for subject in islice(binding.subjects, MOST_SUBJECTS - looked):
            looked += 1
            if subject.kind == ACCOUNT:
                accounts[subject.namespace, subject.name] = None
    for account in sorted(accounts):
        holder = account_holder(account, snapshot)
        if holder is not None:
            yield holder


def bindings_of(role: Role, snapshot: Snapshot) -> Iterator[RoleBinding]:
    """The bindings of ``role``, at most ``MOST_BINDINGS``."""
    for key in islice(snapshot.role_bindings.get(role.reference, ()), MOST_BINDINGS):
        yield snapshot.bindings[key]
