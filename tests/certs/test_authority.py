from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store

from certs.authority import SERVING_LIFETIME, alternative_name, issue, make_authority
from certs.bundle import Pair

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def test_a_strict_verifier_accepts_what_is_issued_for_each_host() -> None:
    authority = make_authority(NOW)
    serving = issue(authority, ["allocguard.allocguard-system.svc", "127.0.0.1", "::1"], NOW)
    store = Store([authority.certificate])
    for host in ("allocguard.allocguard-system.svc", "127.0.0.1", "::1"):
        verifier = PolicyBuilder().store(store).time(NOW).build_server_verifier(alternative_name(host))
        assert verifier.verify(serving.certificate, []) == [serving.certificate, authority.certificate]


def test_extensions_say_what_each_certificate_is_for() -> None:
    authority = make_authority(NOW)
    serving = issue(authority, ["a.example"], NOW)

    root = authority.certificate.extensions
    assert root.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(True, 0)
    assert root.get_extension_for_class(x509.KeyUsage).value.key_cert_sign

    leaf = serving.certificate.extensions
    assert leaf.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(False, None)
    usage = leaf.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    assert list(leaf.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    subject_id = root.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert leaf.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == subject_id
    assert isinstance(serving.key, ec.EllipticCurvePrivateKey)
    assert serving.key.curve.name == "secp256r1"


def test_validity_allows_a_client_whose_clock_is_behind_and_ends_with_the_authority() -> None:
    authority = make_authority(NOW, lifetime=timedelta(days=30))
    serving = issue(authority, ["a.example"], NOW + timedelta(days=1)).certificate
    assert serving.not_valid_before_utc == NOW + timedelta(days=1) - timedelta(hours=1)
    assert serving.not_valid_after_utc == authority.certificate.not_valid_after_utc

    young = issue(make_authority(NOW), ["a.example"], NOW).certificate
    assert young.not_valid_after_utc == NOW + SERVING_LIFETIME


def test_an_expired_authority_issues_nothing() -> None:
    authority = make_authority(NOW, lifetime=timedelta(days=1))
    with pytest.raises(ValueError, match="ended at 2026-11-30T12:00:00Z"):
        issue(authority, ["a.example"], NOW + timedelta(days=2))


def test_an_authority_with_an_edwards_key_can_issue() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([])
    root = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(days=9))
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .sign(key, None)
    )
    issued = issue(Pair((root,), key), ["a.example"], NOW)
    issued.certificate.verify_directly_issued_by(root)


def test_hosts_are_kept_once_and_in_lower_case() -> None:
    serving = issue(make_authority(NOW), ["A.example", "a.example", "*.b.example", "10.0.0.1"], NOW)
    names = serving.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example", "*.b.example"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]


@pytest.mark.parametrize(
    "host",
    ["", " ", "a.example:8443", "https://a.example", "a..b", "-a.example", "a_b", "ä.example", "\uff11.example",
     "256.1.1.1", "1.2.3", "10.0.0.0/8", "a.*.example", "*", "a.example.", "x" * 64, ".".join(["abc"] * 70), "a\nb",
     "[::1]"],
)  # fmt: skip
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="needs a DNS name or an IP address"):
        issue(make_authority(NOW), [host], NOW)


def test_no_host_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        issue(make_authority(NOW), [], NOW)


def test_each_certificate_is_new() -> None:
    authority = make_authority(NOW)
    prints = {issue(authority, ["a.example"], NOW).certificate.fingerprint(hashes.SHA256()) for _ in range(3)}
    assert len(prints) == 3
