from datetime import UTC, datetime, timedelta
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import issue, make_authority
from certs.bundle import NAMES, Material, to_pem
from certs.error import CertificateError
from certs.renewal import announce, switch
from certs.secret import complete, material, parts

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
HOSTS = ["localhost"]
PLACE = PurePath("secret guard/certificates")


def made() -> Material:
    return complete({}, PLACE, HOSTS, NOW)


def test_every_state_is_read_as_it_was_written() -> None:
    steady = made()
    announced = announce(steady, NOW)
    switched = switch(announced, NOW)
    again = announce(switched, NOW)
    for held in (steady, announced, switched, again):
        assert parts(material(parts(held), PLACE)) == parts(held)
        read = material(parts(held), PLACE)
        assert (read.authorities, read.retiring) == (held.authorities, held.retiring)
        assert (read.upcoming is None) == (held.upcoming is None)


def test_a_key_finds_its_certificate_anywhere_among_the_authorities() -> None:
    held, extra = made(), make_authority(NOW).certificate
    given = {**parts(held), "ca.crt": to_pem((extra, *held.authorities))}
    read = material(given, PLACE)
    assert read.authority is not None
    assert held.authority is not None
    assert read.authority.certificate == held.authority.certificate
    assert read.authorities == (extra, *held.authorities)


@pytest.mark.parametrize(
    ("name", "part", "reason"),
    [
        (
            "ca-next.key",
            make_authority(NOW).key_pem(),
            "ca-next.key: belongs to another certificate than ca.crt; put a pair there",
        ),
        ("ca-next.key", b"x", "ca-next.key: holds no PEM private key; put the key of its certificate there"),
        (
            "ca.key",
            make_authority(NOW).key_pem(),
            "ca.key: belongs to another certificate than ca.crt; put a pair there",
        ),
        ("ca-old.crt", b"x", "ca-old.crt: holds no readable PEM certificate; put the one there"),
        ("ca.crt", b"x", "ca.crt: holds no readable PEM certificate; put the one there"),
        ("tls.key", b"", "tls.key: holds no PEM private key; put the key of its certificate there"),
    ],
)
def test_a_part_that_is_wrong_is_named(name: str, part: bytes, reason: str) -> None:
    with pytest.raises(CertificateError, match=f"^secret guard/certificates/{reason}"):
        material({**parts(made()), name: part}, PLACE)


def test_keys_of_authorities_are_not_looked_at_where_somebody_else_issues() -> None:
    held = made()
    read = material({**parts(held), "ca.key": b"theirs", "ca-next.key": b"x"}, PLACE, issuing=False)
    assert (read.authority, read.upcoming) == (None, None)
    assert read.authorities == held.authorities


def test_what_is_missing_is_made() -> None:
    authority = make_authority(NOW)
    given = {"ca.crt": authority.certificate_pem(), "ca.key": authority.key_pem()}
    held = complete(given, PLACE, HOSTS, NOW)
    held.serving.certificate.verify_directly_issued_by(authority.certificate)
    # A pair that is there is taken as it is.
    theirs = issue(make_authority(NOW), ["theirs.example"], NOW)
    pair = {"tls.crt": theirs.certificate_pem(), "tls.key": theirs.key_pem()}
    assert complete(pair, PLACE, HOSTS, NOW).serving.certificate == theirs.certificate
    with pytest.raises(CertificateError, match=r"ca\.key: is missing beside ca\.crt"):
        complete({"ca.crt": given["ca.crt"]}, PLACE, HOSTS, NOW)
    with pytest.raises(CertificateError, match=r"ca\.crt: the authority's own certificate ended"):
        complete(given, PLACE, HOSTS, NOW + timedelta(days=5000))


WHOLE = parts(switch(announce(made(), NOW), NOW))


@given(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=9) | st.sampled_from(list(WHOLE.values()))))
def test_any_content_is_read_or_refused(given: dict[str, bytes]) -> None:
    for content in (given, {**WHOLE, **given}):
        for issuing in (True, False):
            try:
                material(content, PLACE, issuing=issuing)
            except CertificateError as error:
                assert error.place.parent == PLACE  # noqa: PT017
