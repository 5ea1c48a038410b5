"""The promise of the steps: whatever a server may still show is trusted by whatever an API server may still go by."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePath

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from certs.authority import AUTHORITY_LIFETIME, CLOCK_SKEW, SERVING_LIFETIME, alternative_name, issue, make_authority
from certs.bundle import Material, Pair
from certs.inspect import hosts, problems
from certs.renewal import announce, drop, due, phase, renew, switch, trusts

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
PLACE = PurePath("certs")
HOST = "allocguard.guard-system.svc"
DAY = timedelta(days=1)


def made(now: datetime = NOW, authority: Pair | None = None, serving: timedelta = SERVING_LIFETIME) -> Material:
    issuer = authority or make_authority(now)
    return Material(PLACE, issue(issuer, [HOST], now, serving), issuer.chain, issuer)


def settled(held: Material, now: datetime, names: tuple[str, ...] = (HOST,), injected: bool = False) -> Material:
    """``held`` after everything that is due at ``now``."""
    for _ in range(10):
        step = due(held, now, names, held.authorities if injected else ())
        if step is None:
            return held
        held = step
    raise AssertionError("steps without end")


def accepted(serving: Pair, trusted: tuple[x509.Certificate, ...], now: datetime) -> bool:
    """Whether a verifier that knows nothing of this package accepts ``serving``."""
    verifier = PolicyBuilder().store(Store(list(trusted))).time(now).build_server_verifier(alternative_name(HOST))
    try:
        verifier.verify(serving.certificate, [])
    except VerificationError:
        return False
    return True


@dataclass
class Server:
    serving: Pair


@dataclass
class Reader:
    """An API server: it goes by the last bundle that it read."""

    bundle: tuple[x509.Certificate, ...]


class Fleet(RuleBasedStateMachine):
    """Servers and API servers that follow each at its own pace, none more than a week behind."""

    @initialize()
    def begin(self) -> None:
        self.now = NOW
        self.held = made(NOW)
        self.servers = [Server(self.held.serving) for _ in range(3)]
        self.configuration = self.held.authorities
        self.readers = [Reader(self.configuration) for _ in range(2)]
        self.behind = 0

    @rule(moves=st.text("sib", min_size=1, max_size=8))
    def lead(self, moves: str) -> None:
        """Whoever leads is faster than the others: it does what is due (s), injects (i), and the API servers read it
        at once (b).
        """
        for move in moves:
            if move == "s":
                self.step()
            else:
                self.configuration = self.held.authorities
            if move == "b":
                for reader in self.readers:
                    reader.bundle = self.configuration

    def step(self) -> None:
        """What is due, known what every API server goes by."""
        known = set.intersection(*(set(each.bundle) for each in self.readers))
        self.held = due(self.held, self.now, [HOST], known) or self.held

    @rule()
    def roll_by_hand(self) -> None:
        if phase(self.held) == "steady":
            self.held = announce(self.held, self.now)

    @rule()
    def renew_by_hand(self) -> None:
        self.held = renew(self.held, self.now)

    @rule(which=st.integers(0, 2))
    def server_follows(self, which: int) -> None:
        self.servers[which].serving = self.held.serving

    @rule()
    def server_starts_anew(self) -> None:
        self.servers.append(Server(self.held.serving))
        self.servers = self.servers[-3:]

    @rule(which=st.integers(0, 1))
    def reader_follows(self, which: int) -> None:
        self.readers[which].bundle = self.configuration

    @rule(days=st.integers(1, 7))
    def days_pass(self, days: int) -> None:
        self.behind += days
        if self.behind > 7:
            self._all_follow()
        self.now += days * DAY

    def _all_follow(self, injecting: bool = True) -> None:
        self.behind = 0
        self.step()
        for server in self.servers:
            server.serving = self.held.serving
        if injecting:
            self.lead("b")

    @invariant()
    def everybody_is_accepted_by_everybody(self) -> None:
        for server in self.servers:
            for reader in self.readers:
                assert accepted(server.serving, reader.bundle, self.now)

    @invariant()
    def what_is_held_is_sound(self) -> None:
        assert problems(self.held, self.now) == []
        assert len(self.held.authorities) <= 3


class OldFleet(Fleet):
    """The same for decades."""

    neglected = False

    @rule(injecting=st.booleans())
    def years_pass(self, injecting: bool) -> None:
        """Two years in which all of them go on; only the injection may be left out, not twice in a row."""
        self.neglected = not injecting and not self.neglected
        self._all_follow(not self.neglected)
        for _ in range(27):
            self.now += 27 * DAY
            self._all_follow(not self.neglected)


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestOldFleet = OldFleet.TestCase
TestOldFleet.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)


def test_every_version_of_a_replacement_is_trusted_by_every_bundle_that_can_still_be_read() -> None:
    steady = made()
    announced = announce(steady, NOW)
    switched = switch(announced, NOW)
    dropped = drop(switched)
    # Which bundles API servers may go by while servers may show what that version has.
    readable = {
        "steady": (steady, [steady, announced, switched]),
        "announced": (announced, [steady, announced, switched]),
        "switched": (switched, [announced, switched, dropped]),
        "dropped": (dropped, [announced, switched, dropped]),
    }
    for held, bundles in readable.values():
        assert [accepted(held.serving, bundle.authorities, NOW) for bundle in bundles] == [True, True, True]
    assert not accepted(switched.serving, steady.authorities, NOW)
    assert not accepted(announced.serving, dropped.authorities, NOW)


def test_nothing_is_due_before_two_thirds_of_a_life() -> None:
    held = made()
    serving = held.serving.certificate
    moment = serving.not_valid_before_utc + (serving.not_valid_after_utc - serving.not_valid_before_utc) * 2 // 3
    assert due(held, moment - timedelta(seconds=1), [HOST]) is None
    renewed = due(held, moment, [HOST])
    assert renewed is not None
    assert renewed.authority == held.authority
    assert renewed.serving.certificate.not_valid_after_utc == moment + SERVING_LIFETIME


def test_an_authority_is_replaced_in_three_steps() -> None:
    old = settled(made(), NOW)
    late = NOW + AUTHORITY_LIFETIME * 2 // 3
    first = settled(old, late)
    assert phase(first) == "announced"
    assert old.authority is not None
    assert first.upcoming is not None
    assert first.authorities == (*old.authorities, first.upcoming.certificate)
    first.serving.certificate.verify_directly_issued_by(old.authority.certificate)

    assert due(first, late, [HOST], [first.upcoming.certificate]) is None, "some API server has the new one only"
    second = due(first, late, [HOST], first.authorities)
    assert second is not None
    assert phase(second) == "retiring"
    assert second.authority == first.upcoming
    assert second.authorities == (first.upcoming.certificate, old.authority.certificate)
    second.serving.certificate.verify_directly_issued_by(first.upcoming.certificate)
    last = first.serving.certificate.not_valid_after_utc

    assert settled(second, last).authorities == second.authorities
    third = settled(second, last + timedelta(seconds=1))
    assert phase(third) == "steady"
    assert third.authorities == first.upcoming.chain


def test_names_are_added_and_never_taken_away() -> None:
    held = made()
    assert due(held, NOW, [HOST]) is None
    assert due(held, NOW, []) is None
    assert due(held, NOW, [HOST.upper()]) is None
    one = settled(held, NOW, ("one.example",))
    assert hosts(one.serving.certificate) == [HOST, "one.example"]
    # Replicas that are told different names do not take turns.
    both = settled(one, NOW, ("10.0.0.1",))
    assert hosts(both.serving.certificate) == [HOST, "one.example", "10.0.0.1"]
    assert due(both, NOW, ["one.example"]) is None
    with pytest.raises(ValueError, match="needs a DNS name"):
        due(both, NOW, ["a b"])


@pytest.mark.parametrize("away", [timedelta(days=4000), timedelta(days=-4000)], ids=["expired", "from the future"])
def test_what_is_of_another_time_is_made_again_at_once(away: timedelta) -> None:
    """An expired certificate when the server starts, and one made by a clock that was ahead."""
    now = NOW + away
    held = settled(made(), now)
    assert problems(held, now) == []
    assert problems(made(), now) != []


def test_an_expired_serving_certificate_is_made_again_by_the_same_authority() -> None:
    held = made(serving=DAY)
    later = settled(held, NOW + 2 * DAY)
    assert later.authority == held.authority
    assert problems(later, NOW + 2 * DAY) == []


def test_an_authority_that_is_nobody_s_to_replace_stays() -> None:
    """A root that a person brought: its certificates are renewed, it is not replaced, however old."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "company root")])
    root = (
        x509.CertificateBuilder(name, name, key.public_key(), 7, NOW - DAY, NOW + 100 * DAY)
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .sign(key, hashes.SHA256())
    )
    held = made(authority=Pair((root,), key))
    old = settled(held, NOW + 80 * DAY)
    assert (old.authority, phase(old)) == (held.authority, "steady")
    assert old.serving.certificate.not_valid_after_utc == root.not_valid_after_utc
    # One more would end with the authority all the same.
    assert due(old, NOW + 99 * DAY, [HOST]) is None
    assert due(old, NOW + 101 * DAY, [HOST]) is None
    assert phase(announce(old, NOW)) == "announced"


def test_without_the_key_of_an_authority_nothing_is_due() -> None:
    held = replace(made(), authority=None)
    assert due(held, NOW + 80 * DAY, ["other.example"]) is None
    with pytest.raises(ValueError, match=r"needs ca\.key"):
        renew(held, NOW)


def test_a_serving_certificate_that_no_authority_here_issued_is_replaced() -> None:
    held = replace(made(), serving=made().serving)
    renewed = due(held, NOW, [HOST])
    assert renewed is not None
    assert problems(renewed, NOW) == []


def test_names_that_no_certificate_of_ours_could_have_are_left_behind() -> None:
    held = made()
    assert held.authority is not None
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("under_score.example"), x509.DNSName("a.example")]
    odd = (
        x509.CertificateBuilder(
            held.authority.certificate.subject, x509.Name([]), key.public_key(), 7, NOW - 9 * DAY, NOW + DAY
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(held.authority.key, hashes.SHA256())
    )
    renewed = settled(replace(held, serving=Pair((odd,), key)), NOW)
    assert hosts(renewed.serving.certificate) == ["a.example", HOST]


def test_the_certificate_of_a_person_in_the_bundle_stays_through_a_replacement() -> None:
    extra = make_authority(NOW).certificate
    held = made()
    held = replace(held, authorities=(*held.authorities, extra))
    rolled = drop(switch(announce(held, NOW), NOW))
    assert rolled.authority is not None
    assert rolled.authorities == (rolled.authority.certificate, extra)


def test_an_upcoming_authority_of_another_time_is_announced_anew() -> None:
    held = announce(made(), NOW)
    early = NOW - CLOCK_SKEW - DAY
    again = due(replace(held, serving=made(early).serving), early, [HOST])
    assert again is not None
    assert again.upcoming != held.upcoming
    assert len(again.authorities) == 2


def test_switching_needs_something_to_switch_to() -> None:
    with pytest.raises(ValueError, match="needs one to be announced first"):
        switch(made(), NOW)


def test_trust_is_judged_by_whom_one_trusts() -> None:
    held = made()
    assert trusts(held.authorities, held, NOW)
    assert not trusts(made().authorities, held, NOW)
    assert not trusts((), held, NOW)
    assert not trusts(held.authorities, held, NOW + 91 * DAY)
