"""Keys and certificates, read from PEM files or newly created.

Counterpart: the file half of `TlsHelper` (Apache), and Netty's `SelfSignedCertificate`.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from OpenSSL.crypto import X509, PKey

_VALID_DAYS = 3650


class TLSConfigError(Exception):
    """Unusable TLS settings. The text is one line with the setting and the file."""


@dataclass(frozen=True, slots=True)
class TLSIdentity:
    """A private key, its certificate, and the certificates up to a trusted one."""

    key: PKey
    certificate: X509
    chain: list[X509] = field(default_factory=list)


def read_identity(prefix: str, key_path: str | None, cert_path: str | None, password: str | None) -> TLSIdentity:
    """Read a key (PKCS#1, PKCS#8 or SEC1, encrypted or not) and a chain whose first certificate belongs to the key.

    ``prefix`` is that of the settings, for errors. Raises TLSConfigError.
    """
    if key_path is None or cert_path is None:
        raise TLSConfigError(f"{prefix}.{'keyPath' if key_path is None else 'certPath'} is not set")
    certificate, *chain = read_certificates(f"{prefix}.certPath", cert_path)
    return TLSIdentity(_read_key(prefix, key_path, password), certificate, chain)


def read_certificates(setting: str, path: str) -> list[X509]:
    """Read all certificates of a PEM file, at least one. Raises TLSConfigError."""
    try:
        return [X509.from_cryptography(found) for found in x509.load_pem_x509_certificates(_read(setting, path))]
    except ValueError as error:
        raise TLSConfigError(f"{setting}: {path} does not contain a PEM certificate") from error


def self_signed(now: datetime | None = None) -> TLSIdentity:
    """Create a key and an untrusted certificate for localhost, for tests and for encryption without authentication."""
    now = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_VALID_DAYS))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    pkey = PKey.from_cryptography_key(key)  # type: ignore[arg-type]  # the stubs do not know elliptic curves
    return TLSIdentity(pkey, X509.from_cryptography(certificate))


def _read_key(prefix: str, path: str, password: str | None) -> PKey:
    data = _read(f"{prefix}.keyPath", path)
    if password is not None and b"ENCRYPTED" not in data:
        password = None  # like Java, ignore a password for an unencrypted key
    try:
        key = load_pem_private_key(data, password.encode() if password is not None else None)
        return PKey.from_cryptography_key(key)  # type: ignore[arg-type]  # other kinds raise TypeError
    except TypeError as error:
        raise TLSConfigError(
            f"{prefix}.keyPath: {path} is encrypted: set {prefix}.keyPassword"
            if b"ENCRYPTED" in data
            else f"{prefix}.keyPath: {path} contains a kind of key that TLS cannot use"
        ) from error
    except ValueError as error:
        why = "is not a PEM private key" if password is None else f"cannot be read with {prefix}.keyPassword"
        raise TLSConfigError(f"{prefix}.keyPath: {path} {why}") from error


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TLSConfigError(f"{setting}: cannot read {path}: {error.strerror}") from error
