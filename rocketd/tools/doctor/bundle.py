"""A file for those who help: findings, settings, the states of the brokers and the ends of the logs, without secrets."""

import io
import json
import os
import re
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.command_line.errors import CommandError
from rocketd.common.process.version import version_text
from rocketd.tools.doctor.cluster import ExaminedBroker
from rocketd.tools.doctor.findings import DoctorFinding
from rocketd.tools.doctor.machine import MachineFacts

TAIL_BYTES = 256 << 10
"""Bytes of the end of each log file."""
MAX_LOGS = 20
MASK = "******"
_NAME = r"(?:secret|pass(?:word|wd|phrase|code)|pwd|token|signature|(?:api|private)[_-]?key)[\w.-]{0,40}"
_SECRET = re.compile(
    # A name such as secretKey, and the sign after it. Also one in quotes with a comma, as in a printed list.
    rf"""((?:{_NAME}|pass|\bpw|credentials?|authorization|cookie)"""
    r"""(?:["']?[ \t]{0,10}[=:]|["'][ \t]{0,10},)[ \t]{0,10}"""
    # An option of a command line.
    rf"""|(?<![\w-])--[\w-]{{0,40}}{_NAME}["',= \t]{{1,10}}|\bbearer[ \t]{{1,10}})"""
    # The rest of the line, and the lines that continue it. A value may contain blanks, commas and quotes.
    r"""(?:[^\\\n]|\\.|\\\n)+""",
    re.IGNORECASE,
)
_SECRET_OF_URL = re.compile(r"(?<=[\w%+./-]):(//)?\S{1,256}@")


def masked(text: str) -> str:
    """Return a text without secrets.

    Stars replace the rest of a line after words such as ``secretKey=``, and the account in ``scheme://user:password@host``.
    """
    return _SECRET_OF_URL.sub(rf":\1{MASK}@", _SECRET.sub(rf"\1{MASK}", text))


def write_bundle(
    path: str,
    facts: MachineFacts,
    settings: BrokerSettings | None,
    findings: Sequence[DoctorFinding],
    members: Sequence[ExaminedBroker],
) -> None:
    """Write a new file (tar, gzip) that its owner alone may read. Raises CommandError."""
    texts = {
        "version.txt": f"{version_text()}\n",
        "machine.json": _json(asdict(facts)),
        "findings.json": "".join(_json(asdict(finding), indent=None) for finding in findings),
        "brokers.json": _json([asdict(member) for member in members]),
    }
    if settings is not None:
        texts["settings.properties"] = masked(settings.printed())
        texts |= {f"logs/{name}": text for name, text in _ends_of_logs(settings.log.log_dir)}
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            _write(file, texts.items())
    except OSError as error:
        raise CommandError(f"--bundle {path}: {error.strerror}") from None


def _write(file: io.BufferedWriter, texts: Iterable[tuple[str, str]]) -> None:
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in texts:
            data = text.encode(errors="backslashreplace")
            member = tarfile.TarInfo(f"rocketd-doctor/{name}")
            member.size, member.mtime, member.mode = len(data), int(time.time()), 0o600
            archive.addfile(member, io.BytesIO(data))


def _ends_of_logs(directory: str | None) -> Iterator[tuple[str, str]]:
    if not directory:
        return
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".log"))
    except OSError as error:
        yield "unreadable.txt", f"{directory}: {error.strerror}\n"
        return
    for name in names[:MAX_LOGS]:
        try:
            with open(os.path.join(directory, name), "rb") as file:
                before = max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES)
                file.seek(before)
                data = file.read(TAIL_BYTES)
        except OSError as error:
            yield name, f"{error.strerror}\n"
        else:
            # The rest of a line could be a secret without its name.
            whole_lines = data.partition(b"\n")[2] if before else data
            yield name, masked(whole_lines.decode(errors="replace"))


def _json(value: object, indent: int | None = 1) -> str:
    return json.dumps(_masked_object(value), indent=indent, ensure_ascii=False) + "\n"


def _masked_object(value: object) -> object:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {name: MASK if _SECRET.search(f"{name}=x") else _masked_object(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_masked_object(each) for each in value]
    return value
