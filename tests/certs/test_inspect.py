import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import issue, make_authority
from certs.bundle import Material, Pair
from certs.inspect import describe, ends, problems

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
FOLDER = Path("certs")
PEOPLE = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])


def intermediate(root: Pair, authority: bool = True) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder(root.certificate.subject, PEOPLE, key.public_key(), 7, NOW, NOW + timedelta(days=50))
        .add_extension(x509.BasicConstraints(authority, None), critical=True)
        .sign(root.key, hashes.SHA256())
    )
    return Pair((certificate,), key)


def said(held: Material, now: datetime = NOW) -> list[str]:
    return [str(problem) for problem in problems(held, now)]


def test_a_description_says_what_a_person_asks_for() -> None:
    certificate = issue(make_authority(NOW), ["a.example", "10.0.0.1", "::1"], NOW).certificate
    seen = describe(certificate, NOW + timedelta(days=1, hours=1))
    assert seen.subject == "CN=allocguard"
    assert seen.issuer == "CN=allocguard authority"
    assert seen.hosts == ("a.example", "10.0.0.1", "::1")
    assert seen.key == "ECDSA secp256r1"
    assert not seen.authority
    assert seen.not_before == NOW - timedelta(hours=1)
    assert seen.not_after == NOW + timedelta(days=90)
    assert seen.days_left == 88
    der = ssl.PEM_cert_to_DER_cert(certificate.public_bytes(Encoding.PEM).decode())
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    assert seen.fingerprint == digest.finalize().hex(":").upper()


def test_days_left_turn_negative_with_the_first_second_after_the_end() -> None:
    certificate = make_authority(NOW, lifetime=timedelta(days=1)).certificate
    end = NOW + timedelta(days=1)
    assert [describe(certificate, end + timedelta(seconds=n)).days_left for n in (-1, 0, 1)] == [0, 0, -1]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (rsa.generate_private_key(65537, 2048), "RSA 2048"),
        (ec.generate_private_key(ec.SECP384R1()), "ECDSA secp384r1"),
        (ed25519.Ed25519PrivateKey.generate(), "Ed25519"),
    ],
)
def test_kinds_of_keys_have_names(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, kind: str
) -> None:
    root = make_authority(NOW)
    certificate = x509.CertificateBuilder(
        root.certificate.subject, PEOPLE, key.public_key(), 7, NOW, NOW + timedelta(days=5)
    ).sign(root.key, hashes.SHA256())
    assert describe(certificate, NOW).key == kind
    assert describe(certificate, NOW).hosts == ()


def test_a_sound_bundle_has_no_problem_from_its_first_to_its_last_second() -> None:
    root = make_authority(NOW)
    serving = issue(root, ["a.example"], NOW)
    held = Material(FOLDER, serving, root.chain, root)
    for moment in (serving.certificate.not_valid_before_utc, NOW, serving.certificate.not_valid_after_utc):
        assert said(held, moment) == []


def test_dates_are_judged_at_the_given_time() -> None:
    root = make_authority(NOW)
    held = Material(FOLDER, issue(root, ["a.example"], NOW), root.chain, root)
    assert said(held, NOW + timedelta(days=91)) == [
        "certs/tls.crt: CN=allocguard expired at 2027-02-27T12:00:00Z, it is 2027-02-28T12:00:00Z now; issue it again"
    ]
    early = said(held, NOW - timedelta(days=1))
    assert early[0] == (
        "certs/tls.crt: CN=allocguard is valid from 2026-11-29T11:00:00Z, it is 2026-11-28T12:00:00Z now; "
        "check the clock"
    )


def test_an_expired_authority_is_named_unless_a_valid_one_is_trusted_beside_it() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root")])

    def root(days: int) -> x509.Certificate:
        return (
            x509.CertificateBuilder(name, name, key.public_key(), 7, NOW - timedelta(days=9), NOW + timedelta(days))
            .add_extension(x509.BasicConstraints(True, None), critical=True)
            .sign(key, hashes.SHA256())
        )

    old, new = root(-1), root(30)
    serving = issue(Pair((new,), key), ["a.example"], NOW)
    assert said(Material(FOLDER, serving, (old, new))) == []
    assert said(Material(FOLDER, serving, (old,)))[0].startswith("certs/ca.crt: CN=root expired at 2026-11-28")


def test_another_authority_of_the_same_name_did_not_issue_it() -> None:
    serving = issue(make_authority(NOW), ["a.example"], NOW)
    other = make_authority(NOW)
    assert said(Material(FOLDER, serving, other.chain)) == [
        "certs/tls.crt: was issued by CN=allocguard authority, not by ca.crt (CN=allocguard authority); "
        "put the issuer's certificate in ca.crt"
    ]


def test_without_authorities_the_chain_is_not_judged() -> None:
    assert said(Material(FOLDER, issue(make_authority(NOW), ["a.example"], NOW))) == []


def test_intermediates_are_followed_in_their_order() -> None:
    root = make_authority(NOW)
    middle = intermediate(root)
    leaf = issue(middle, ["a.example"], NOW)
    whole = Pair((leaf.certificate, middle.certificate), leaf.key)
    assert said(Material(FOLDER, whole, root.chain)) == []

    assert "not by ca.crt" in said(Material(FOLDER, leaf, root.chain))[0]

    shuffled = Pair((leaf.certificate, root.certificate, middle.certificate), leaf.key)
    assert said(Material(FOLDER, shuffled, root.chain)) == [
        "certs/tls.crt: the certificate after CN=allocguard did not issue it; put each issuer after its own"
    ]


def test_a_certificate_that_is_no_authority_issues_nothing() -> None:
    root = make_authority(NOW)
    middle = intermediate(root, authority=False)
    leaf = issue(middle, ["a.example"], NOW)
    whole = Pair((leaf.certificate, middle.certificate), leaf.key)
    assert said(Material(FOLDER, whole, root.chain)) != []


def test_a_certificate_that_trusts_itself_serves() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder(PEOPLE, PEOPLE, key.public_key(), 7, NOW, NOW + timedelta(days=5))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("a.example")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    assert said(Material(FOLDER, Pair((certificate,), key), (certificate,))) == []


def test_a_common_name_alone_is_no_host() -> None:
    root = make_authority(NOW)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = x509.CertificateBuilder(
        root.certificate.subject, PEOPLE, key.public_key(), 7, NOW, NOW + timedelta(days=5)
    ).sign(root.key, hashes.SHA256())
    assert said(Material(FOLDER, Pair((certificate,), key), root.chain)) == [
        "certs/tls.crt: has no subject alternative name, needs one: the API server looks at no other name"
    ]


def test_when_what_is_served_ends() -> None:
    root, other = make_authority(NOW), make_authority(NOW - timedelta(days=30))
    held = Material(FOLDER, issue(root, ["a.example"], NOW), (*other.chain, *root.chain), root)
    assert ends(held) == {
        "serving": held.serving.certificate.not_valid_after_utc,
        "ca": root.certificate.not_valid_after_utc,
    }
    unknown = Material(FOLDER, held.serving)
    assert ends(unknown) == {"serving": held.serving.certificate.not_valid_after_utc}
    middle = intermediate(root)
    leaf = issue(middle, ["a.example"], NOW)
    chain = Material(FOLDER, Pair((leaf.certificate, middle.certificate), leaf.key), root.chain)
    assert ends(chain) == {
        "serving": min(each.not_valid_after_utc for each in chain.serving.chain),
        "ca": root.certificate.not_valid_after_utc,
    }
