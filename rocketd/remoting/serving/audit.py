"""Notes the changes that administrators make at a server: who, from where, what, and the values before and after.

Counterpart: none. Apache's servers write such requests into their ordinary log, without the values before.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

import msgspec
from twisted.logger import Logger

from rocketd.common.logs.throttle import ThrottledLog
from rocketd.common.settings.daemon_settings import KeyResult, UpdateResult
from rocketd.remoting.bodies.audit import MAX_CHANGES, AdminChange, AdminChanges
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.admin import AdminChangesRequestHeader
from rocketd.remoting.headers.client import read_header
from rocketd.remoting.interfaces import IRequestContext
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

MAX_VALUE_CHARACTERS = 4096
"""Limit of a value as JSON. A longer one is noted as a text, cut off."""
MAX_SUBJECT_CHARACTERS = 1024
MAX_ANSWER_BYTES = 1 << 20

_SET = {
    UpdateResult.APPLIED: "set setting",
    UpdateResult.RESTART: "set setting from the next start on",
    UpdateResult.NO_EFFECT: "set setting that has no effect",
}

Signer = Callable[[str, RemotingCommand], str | None]
"""Returns the access key that has signed a request, from the address and the request; None if that is not checked."""


def _nobody(_address: str, _request: RemotingCommand) -> None:
    """Check no signature."""


class AuditLines(Protocol):
    """The file of the lines. Any thread."""

    def append(self, line: bytes) -> None:
        """Add a line. Raises OSError."""

    def last(self, count: int, max_bytes: int) -> list[bytes]:
        """Return the last lines, the oldest first. Raises OSError."""


class Audit:
    """The audit of one server. Any thread."""

    _log = Logger()

    def __init__(self, lines: AuditLines, now_ms: Callable[[], int], signer: Signer = _nobody) -> None:
        self._lines = lines
        self._now_ms = now_ms
        self._signer = signer
        self._faults = ThrottledLog(self._log)

    def note(
        self,
        request: RemotingCommand,
        context: IRequestContext,
        action: str,
        subject: str,
        before: object = None,
        after: object = None,
    ) -> None:
        """Note a change that took effect. A failure to write is logged, because the change is done."""
        address = context.connection.address
        change = AdminChange(
            datetime.fromtimestamp(self._now_ms() / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            address,
            self._signer(address, request),
            action,
            subject[:MAX_SUBJECT_CHARACTERS].encode(errors="replace").decode(),
            _bounded(before),
            _bounded(after),
        )
        try:
            self._lines.append(msgspec.json.encode(change))
        except OSError as error:
            self._faults.error("unwritten", "the audit file cannot be written: {error}", error=error)

    def note_settings(
        self,
        request: RemotingCommand,
        context: IRequestContext,
        before: Mapping[str, str],
        results: Iterable[KeyResult],
    ) -> None:
        """Note the accepted settings of an update. ``before`` has the values before it, by key."""
        for result in results:
            if result.accepted:
                self.note(request, context, _SET[result.outcome], result.name, before.get(result.name), result.text)

    def answer(self, request: RemotingCommand) -> RemotingCommand:
        """Return the answer to GET_ADMIN_CHANGES. Lines that cannot be read are left out. Raises RequestError."""
        count = min(read_header(AdminChangesRequestHeader, request).count, MAX_CHANGES)
        try:
            lines = self._lines.last(count, MAX_ANSWER_BYTES)
        except OSError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the audit file cannot be read: {error}") from error
        changes = []
        for line in lines:
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                changes.append(msgspec.json.decode(line, type=AdminChange))
        return RemotingCommand.response(body=AdminChanges(changes).encode())


def _bounded(value: object) -> object:
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a peer may send half of a character
        text = msgspec.json.encode(ascii(value))
    if len(text) <= MAX_VALUE_CHARACTERS:
        return msgspec.Raw(text)
    return text[:MAX_VALUE_CHARACTERS].decode(errors="replace") + "…"
