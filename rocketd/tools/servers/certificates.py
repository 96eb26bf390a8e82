"""``rocketd tls``: make an authority and certificates for the servers of a cluster, and look at certificates.

For clusters without an authority of their company. Counterpart: none; Apache describes calls of openssl.
"""

import os
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import whole_number
from rocketd.common.command_line.output import complain, show_bytes, show_table
from rocketd.remoting.tls.authority import Authority, write_private
from rocketd.tools.base.json_lines import json_text

F = TypeVar("F", bound=Callable[..., Any])

CONNECT_SECONDS = 5.0
_CA, _CA_KEY = "ca.pem", "ca-key.pem"
_AUTHORITY_DAYS, _DAYS = "3650", "365"
_LONGEST_DAYS = 36_500

_DIRECTORY = click.option(
    "--dir", "directory", default=".", show_default=True, metavar="DIR", help="Directory of the files."
)
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")


def _days(default: str) -> Callable[[F], F]:
    return click.option(
        "--days",
        type=whole_number(1, _LONGEST_DAYS),
        default=default,
        show_default=True,
        metavar="N",
        help="Days until the end of the certificate.",
    )


@command("authority")
@click.option("--name", default="rocketd cluster", show_default=True, metavar="TEXT", help="Name of the authority.")
@_days(_AUTHORITY_DAYS)
@_DIRECTORY
def authority_command(name: str, days: int, directory: str) -> int:
    """Make an authority: ca.pem, which clients and servers trust, and ca-key.pem, which signs certificates.

    Keep ca-key.pem away from the servers. Existing files are not replaced.
    """
    authority = Authority.make(name, datetime.now(UTC), days)
    _write(directory, {_CA: authority.certificate_pem, _CA_KEY: authority.key_pem})
    complain(f"made {os.path.join(directory, _CA)} and {os.path.join(directory, _CA_KEY)}")
    return 0


@command("certificate")
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option("--name", metavar="NAME", help="Name of the two files. Default: the first host.")
@_days(_DAYS)
@_DIRECTORY
def certificate_command(hosts: tuple[str, ...], name: str | None, days: int, directory: str) -> int:
    """Issue a certificate by the authority in the same directory: NAME.pem and NAME-key.pem.

    HOST is a name or an address by which clients or other servers connect; give all of them. The settings for a server
    are printed. Existing files are not replaced: to renew a certificate, move the old files away first.
    """
    name = name or hosts[0].replace(":", "-").replace("/", "-")
    if os.path.basename(name) != name:
        raise click.UsageError(f"--name {name}: it is the name of two files in --dir {directory}, without a path")
    try:
        authority = Authority.read(_content(directory, _CA), _content(directory, _CA_KEY))
        issued = authority.issue(hosts, datetime.now(UTC), days)
    except ValueError as error:
        raise CommandError(f"{directory}: {error}") from error
    certificate, key = f"{name}.pem", f"{name}-key.pem"
    _write(directory, {certificate: issued.certificate_pem, key: issued.key_pem})
    ends = authority.certificate.not_valid_after_utc
    if issued.certificate.not_valid_after_utc > ends:
        complain(f"the authority ends before the certificate, on {ends:%Y-%m-%d}")
    base = os.path.abspath(directory)
    settings = {
        "tls.test.mode.enable": "false",
        "tls.server.mode": "enforcing",
        "tls.server.certPath": os.path.join(base, certificate),
        "tls.server.keyPath": os.path.join(base, key),
    }
    show_bytes("".join(f"{setting}={value}\n" for setting, value in settings.items()).encode())
    return 0


@command("show")
@click.argument("place", metavar="FILE|HOST:PORT")
@_AS_JSON
def show_command(place: str, as_json: bool) -> int:
    """Print the first certificate of a PEM file, or that of a server: subject, issuer, hosts, time and fingerprint.

    Nothing is verified. The exit status is 1 if the certificate is not valid now.
    """
    certificate = _certificate_of(place)
    now = datetime.now(UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    rows = {
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "hosts": ", ".join(_hosts(certificate)),
        "valid from": begins.isoformat(),
        "valid until": ends.isoformat(),
        "days left": str((ends - now).days),
        "sha256": certificate.fingerprint(hashes.SHA256()).hex(),
    }
    if as_json:
        show_bytes(json_text(rows).encode() + b"\n")
    else:
        show_table(("key", "value"), list(rows.items()), plain_header=False)
    if begins <= now < ends:
        return 0
    complain(f"{place}: the certificate is not valid now")
    return 1


def _certificate_of(place: str) -> x509.Certificate:
    host, colon, port = place.rpartition(":")
    if colon and port.isdigit() and not os.path.exists(place):
        return x509.load_der_x509_certificate(_from_server(host.strip("[]"), int(port)))
    try:
        with open(place, "rb") as file:
            return x509.load_pem_x509_certificates(file.read())[0]
    except OSError as error:
        raise CommandError(f"{place}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"{place} does not contain a PEM certificate") from error


def _from_server(host: str, port: int) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), CONNECT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            return connection.getpeercert(binary_form=True) or b""
    except (OSError, OverflowError) as error:
        raise CommandError(f"{host}:{port}: {error}") from error


def _hosts(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _content(directory: str, name: str) -> bytes:
    path = os.path.join(directory, name)
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}; rocketd tls authority makes it") from error


def _write(directory: str, contents: dict[str, bytes]) -> None:
    paths = {os.path.join(directory, name): content for name, content in contents.items()}
    for path in paths:
        if os.path.lexists(path):
            raise CommandError(f"{path} exists; it is not replaced")
    try:
        os.makedirs(directory, exist_ok=True)
        for path, content in paths.items():
            write_private(path, content)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
