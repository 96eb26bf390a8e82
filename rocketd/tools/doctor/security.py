"""Findings about secrets, certificates and open access of a broker."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime

from rocketd.acl.disk import is_account_file, others_can_read
from rocketd.broker.access.open_doors import open_doors
from rocketd.broker.base.settings import BrokerSettings
from rocketd.remoting.tls.certificates import TLSConfigError, read_certificates
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.doctor.machine import MachineFacts

RENEWAL_DAYS = 30
"""Days before the end of a certificate from which on it is a fault."""
_ACCOUNTS = "conf/acl"


def judge_security(settings: BrokerSettings, facts: MachineFacts) -> Iterator[DoctorFinding]:
    """Yield findings about the files of keys and accounts, about certificates, and about access that is open."""
    for path in _secret_files(settings):
        if others_can_read(path):
            text = f"{path} has secrets, and every user of this machine may read it"
            yield DoctorFinding(WRONG, "security", text, f"chmod 600 {path}")
    for key, path in _certificates(settings):
        yield from _judge_certificate(key, path, facts)
    for door in open_doors(settings):
        yield DoctorFinding(NOTE, "security", door, "docs/security.md has a list of all steps")


def _secret_files(settings: BrokerSettings) -> list[str]:
    broker, tls = settings.broker, settings.tls
    home = broker.rocketmq_home or ""
    paths = [tls.server_key_path, tls.client_key_path]
    if broker.acl_credentials_file:
        paths.append(os.path.join(home, broker.acl_credentials_file))
    if broker.acl_enable:
        paths.append(os.path.join(home, broker.acl_plain_file))
        directory = os.path.join(home, _ACCOUNTS)
        if home and os.path.isdir(directory):
            paths += [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if is_account_file(name)]
    return [path for path in paths if path]


def _certificates(settings: BrokerSettings) -> list[tuple[str, str]]:
    tls = settings.tls
    named = (("tls.server.certPath", tls.server_cert_path), ("tls.client.certPath", tls.client_cert_path))
    return [(key, path) for key, path in named if path]


def _judge_certificate(key: str, path: str, facts: MachineFacts) -> Iterator[DoctorFinding]:
    remedy = "renew it: the servers load the new file without a restart"
    try:
        certificate = read_certificates(key, path)[0].to_cryptography()
    except (TLSConfigError, OSError) as error:
        yield DoctorFinding(WRONG, "security", str(error), f"correct {key}, or the file")
        return
    # Older versions of the package have only the time without a zone.
    ends = getattr(certificate, "not_valid_after_utc", None) or certificate.not_valid_after.replace(tzinfo=UTC)
    days = (ends - datetime.fromtimestamp(facts.now, UTC)).days
    if days < 0:
        yield DoctorFinding(WRONG, "security", f"{path} expired on {ends:%Y-%m-%d}: peers refuse it", remedy)
    elif days < RENEWAL_DAYS:
        yield DoctorFinding(WRONG, "security", f"{path} expires on {ends:%Y-%m-%d}, in {days} days", remedy)
