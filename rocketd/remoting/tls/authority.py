"""A private authority, and certificates signed by it: for clusters without an authority of their company, and for tests.

Keys are those of the elliptic curve P-256, which every TLS library of the clients accepts. Counterpart: none; Apache
describes calls of openssl.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as a PEM file."""
        return self.certificate.public_bytes(_PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key as a PEM file, not encrypted."""
        return self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


class Authority(Issued):
    """An authority, which signs certificates of servers and clients."""

    @classmethod
    def make(cls, name: str, now: datetime, days: int) -> Self:
        """Make an authority that is valid for so many days."""
        key, subject = ec.generate_private_key(ec.SECP256R1()), _name(name)
        certificate = (
            _builder(subject, subject, key, key, now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(of_authority=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def read(cls, certificate: bytes, key: bytes) -> Self:
        """Read an authority made here from its two PEM files. Raises ValueError."""
        private = serialization.load_pem_private_key(key, None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError("its key is not one of an elliptic curve")
        found = cls(x509.load_pem_x509_certificate(certificate), private)
        if found.certificate.public_key() != private.public_key():
            raise ValueError("the key belongs to another certificate")
        return found

    def issue(self, hosts: Sequence[str], now: datetime, days: int) -> Issued:
        """Issue a certificate for hosts: names or IP addresses, the first one its common name. Raises ValueError."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [_host(host) for host in hosts]
        certificate = (
            _builder(self.certificate.subject, _name(hosts[0]), self.key, key, now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(of_authority=False), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        return Issued(certificate, key)


def write_private(path: str, content: bytes, *, replace: bool = False) -> None:
    """Write a file that its owner alone may read. Raises FileExistsError unless ``replace``."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    issuer: x509.Name,
    subject: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    issuer_id = x509.SubjectKeyIdentifier.from_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        # A day before: clocks differ.
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
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
