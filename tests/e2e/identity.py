"""Who talks to the API server: client certificates, and kubeconfigs that use them or a token."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.authority import issue, make_authority
from certs.bundle import Pair


class Authority:
    """The certificate authority of one control plane, its files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._pair = make_authority(datetime.now(UTC))
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(self._pair.certificate_pem())

    def server(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of a server on the loopback address."""
        return self._files(name, issue(self._pair, ["127.0.0.1", "localhost"], datetime.now(UTC)))

    def client(self, user: str, *groups: str) -> tuple[Path, Path]:
        """Certificate and key that make their holder ``user`` in ``groups``."""
        file = user.replace(":", "_")
        if (self._folder / f"{file}.crt").exists():
            return self._folder / f"{file}.crt", self._folder / f"{file}.key"
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)]))
            .issuer_name(self._pair.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self._pair.key, hashes.SHA256())
        )
        return self._files(file, Pair((certificate,), key))

    def trust(self, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """A context that trusts this authority, and shows the certificate ``pair`` when asked."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if pair is not None:
            context.load_cert_chain(*pair)
        return context

    def _files(self, name: str, pair: Pair) -> tuple[Path, Path]:
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(pair.certificate_pem())
        key.write_bytes(pair.key_pem())
        return certificate, key


def signing_keys(folder: Path) -> tuple[Path, Path]:
    """The key that signs ServiceAccount tokens, and its public half."""
    key = rsa.generate_private_key(65537, 2048)
    private, public = folder / "serviceaccounts.key", folder / "serviceaccounts.pub"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def kubeconfig(path: Path, url: str, authority: Path, pair: tuple[Path, Path] | None = None, token: str = "") -> Path:
    """Write a kubeconfig of one context, whose user has a certificate ``pair`` or a ``token``."""
    user: dict[str, str] = {"token": token} if token else {}
    if pair is not None:
        user = {"client-certificate": str(pair[0]), "client-key": str(pair[1])}
    trusted = b64encode(authority.read_bytes()).decode()
    cluster = {"server": url, "certificate-authority-data": trusted}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": cluster}],
        "users": [{"name": "e2e", "user": user}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    }
    path.write_text(json.dumps(content, indent=1))
    return path
