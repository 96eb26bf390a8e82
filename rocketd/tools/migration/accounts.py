"""Findings about the account files of a broker."""

import os
import shlex
from collections.abc import Iterator, Mapping

from rocketd.acl import disk
from rocketd.acl.errors import AclFileError
from rocketd.acl.plain_file import parse
from rocketd.broker.base.settings import BrokerSettings
from rocketd.tools.doctor.findings import NOTE, WRONG, DoctorFinding
from rocketd.tools.migration.given_settings import ACCOUNT_FILE, GivenSetting

_DIRECTORY = os.path.join("conf", "acl")
_SUBJECT = "accounts"


def account_files(settings: BrokerSettings) -> list[str]:
    """Return the account files of a broker that exist."""
    home = settings.broker.rocketmq_home or ""
    plain = _plain_file(settings)
    found = disk.list_files(os.path.join(home, _DIRECTORY)) if home else []
    return [*found, *([plain] if plain not in found and os.path.isfile(plain) else [])]


def _plain_file(settings: BrokerSettings) -> str:
    return os.path.normpath(os.path.join(settings.broker.rocketmq_home or "", settings.broker.acl_plain_file))


def judge_accounts(settings: BrokerSettings, given: Mapping[str, GivenSetting]) -> tuple[list[DoctorFinding], int]:
    """Read the account files as the broker does. Return findings, and the number of accounts."""
    if not settings.broker.acl_enable:
        return [], 0
    files = account_files(settings)
    findings: list[DoctorFinding] = []
    count = 0
    for path in files:
        try:
            content = parse(disk.read(path), path)
        except (AclFileError, OSError) as error:
            findings.append(
                DoctorFinding(WRONG, _SUBJECT, str(error), "correct the file: rocketd does not start with it")
            )
            continue
        count += len(content.accounts)
        remedy = "correct it; docs/howto/access-control.md has the form"
        findings += [DoctorFinding(NOTE, _SUBJECT, f"{path}: {text}", remedy) for text in content.warnings]
    if ACCOUNT_FILE in given and _plain_file(settings) not in files:
        text = f"{ACCOUNT_FILE} names {_plain_file(settings)}, which does not exist"
        below = settings.broker.acl_plain_file.lstrip("/")
        remedy = f"write {ACCOUNT_FILE}={below} for the file below the installation, as Apache's broker looks for it"
        findings.append(DoctorFinding(WRONG, _SUBJECT, text, remedy))
    elif not files:
        place = os.path.join(settings.broker.rocketmq_home or "ROCKETMQ_HOME", settings.broker.acl_plain_file)
        text = f"aclEnable=true, but there is no account file, such as {place}"
        remedy = "set rocketmqHome to the installation of Apache's broker, or copy its account files"
        findings.append(DoctorFinding(WRONG, _SUBJECT, text, remedy))
    return findings, count


def accounts_for_apache(settings: BrokerSettings) -> Iterator[DoctorFinding]:
    """Yield the account file that Apache's broker does not find: it looks only below its installation."""
    plain = settings.broker.acl_plain_file
    if settings.broker.acl_enable and os.path.isabs(plain):
        text = f"rocketmq.acl.plain.file is {plain}, but Apache's broker looks below its installation only"
        remedy = f"cp {shlex.quote(plain)} $ROCKETMQ_HOME/conf/plain_acl.yml, and remove the setting"
        yield DoctorFinding(WRONG, _SUBJECT, text, remedy)
