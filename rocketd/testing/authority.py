"""A throw-away authority for TLS, and a certificate of it for the servers of a test. Nothing else trusts it."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 30

_EndKey = ec.EllipticCurvePrivateKey


class TlsFiles(NamedTuple):
    """Paths of PEM files: the authority, and a certificate of it for servers and clients, with its private key."""

    ca: str
    certificate: str
    key: str

    def server_settings(self, mode: str) -> Mapping[str, object]:
        """Return the settings of a server for its clients."""
        return {
            "tls.server.mode": mode,
            "tls.test.mode.enable": False,
            "tls.server.keyPath": self.key,
            "tls.server.certPath": self.certificate,
            "tls.server.trustCertPath": self.ca,
        }

    def client_settings(self) -> Mapping[str, object]:
        """Return the settings of a broker for its requests to other servers."""
        return {
            "tls.enable": True,
            "tls.client.authServer": True,
            "tls.client.keyPath": self.key,
            "tls.client.certPath": self.certificate,
            "tls.client.trustCertPath": self.ca,
        }


def write_certificates(directory: str) -> TlsFiles:
    """Make an authority and a certificate for localhost, and write them to a directory."""
    now = datetime.now(UTC)
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name, name = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("rocketd.testing", "localhost")
    )
    authority = (
        _builder(authority_name, authority_name, authority_key, authority_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(of_authority=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(each)) for each in ("127.0.0.1", "::1"))]
    certificate = (
        _builder(authority_name, name, authority_key, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(of_authority=False), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    files = TlsFiles(*(os.path.join(directory, file) for file in ("ca.pem", "certificate.pem", "key.pem")))
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for path, content in zip(files, (authority.public_bytes(pem), certificate.public_bytes(pem), private), strict=True):
        with open(path, "wb", opener=_for_owner) as file:
            file.write(content)
    return files


def _builder(
    issuer: x509.Name, subject: x509.Name, issuer_key: _EndKey, key: _EndKey, now: datetime
) -> x509.CertificateBuilder:
    issuer_id = x509.SubjectKeyIdentifier.from_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False)
    )


def _key_usage(*, of_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not of_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=of_authority,
        crl_sign=of_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
