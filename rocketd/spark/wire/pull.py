"""Pulls of one queue, several under way at once.

A pull's answer tells where the next one begins. While answers keep having the same number of messages, as brokers that
cut them at 32 do, the places of the next few are known before, and asked for together: the broker works while the
task does. An answer that has fewer makes the guesses worthless: those answers are dropped.
"""

from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import Final

from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import SQL92, compile_selector
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader, write_header
from rocketd.spark.errors import OptionError
from rocketd.spark.ranges import Queue, ReadPlan
from rocketd.spark.wire.connection import Connection
from rocketd.spark.wire.faults import header_of, refusal
from rocketd.spark.wire.pull_request import ANY_TAG, BY_TAG, FOUND_NOTHING, pull_header

CODE: Final = RequestCode.PULL_MESSAGE

NOTHING_WANTED: Final = "NO_MATCHED_MESSAGE"
"""Remark of an answer without messages: the filter wanted none of those that were looked at."""

_DEEPEST: Final = 16
"""Most pulls under way."""

_MOST: Final = 1024
"""Messages that a pull asks for; brokers cut it to a number of their own."""

_PREFIX = Struct(">II")
_OFFSET_MARK: Final = 1 << 62
_MOST_MARK: Final = (1 << 30) + 7
_OPAQUE_MARK: Final = (1 << 30) + 3
"""Numbers that no request has, in whose place the template of a pull gets those of each."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """An answer: the offset it was asked from, the one to go on from, its code and remark, and its records."""

    start: int
    following: int
    code: int
    remark: str
    records: bytes

    @property
    def found(self) -> bool:
        """Whether there are records."""
        return self.code == ResponseCode.SUCCESS


def subscription(plan: ReadPlan) -> tuple[str, str]:
    """Type and text of the filter that the broker applies. Tags that it has no words for are left to the reader.

    Raises OptionError for what is no SQL92: Apache's brokers would send all messages.
    """
    if plan.sql92:
        check_sql92(plan.sql92)
        return SQL92, plan.sql92
    tags = plan.tags
    if tags is None or any(not tag.strip() or "|" in tag or tag != tag.strip() or tag == ANY_TAG for tag in tags):
        return BY_TAG, ANY_TAG
    return BY_TAG, " || ".join(sorted(tags))


def check_sql92(text: str) -> None:
    """Raise OptionError for what is no SQL92 expression."""
    try:
        end = compile_selector(SQL92, text).end
    except SelectorError as error:
        raise OptionError(f"the SQL92 filter {text!r} cannot be read: {error}") from error
    if text[end:].strip():
        raise OptionError(
            f"the SQL92 filter {text!r} is whole before {text[end:]!r}: leave that out, or join it by AND"
        )


class Pulls:
    """Asks one broker for one queue, over one connection. Raises UnreachableError, BrokerError for refusals.

    After an answer that is neither found nor `NOTHING_WANTED` nothing is under way any more, and it is of no further use.

    `start` and `end` bound the offsets, `kind` and `expression` are what `subscription` gives.
    """

    def __init__(
        self, connection: Connection, queue: Queue, start: int, end: int, group: str, kind: str, expression: str
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._group = group
        self._kind = kind
        self._expression = expression
        self._end = end
        self._next = start
        self._step = 0
        self._depth = 1
        self._asked: deque[tuple[int, int]] = deque()
        self._template = b"" if connection.signs else self._make_template()
        self._ask()

    def _header(self, offset: int, most: int) -> PullMessageRequestHeader:
        return pull_header(self._group, self._queue, offset, most, self._kind, self._expression)

    def _make_template(self) -> bytes:
        command = RemotingCommand(CODE, write_header(self._header(_OFFSET_MARK, _MOST_MARK)), opaque=_OPAQUE_MARK)
        text = command.encode_header(0)[_PREFIX.size :].replace(b"%", b"%%")
        for mark in (_OFFSET_MARK, _MOST_MARK, _OPAQUE_MARK):
            if text.count(b"%d" % mark) != 1:
                raise AssertionError("a mark is not where it should be")
        # Members are in the order of the header's fields, and the opaque number comes after them.
        return (
            text.replace(b"%d" % _OFFSET_MARK, b"%d")
            .replace(b"%d" % _MOST_MARK, b"%d")
            .replace(b"%d" % _OPAQUE_MARK, b"%d")
        )

    def _ask(self) -> None:
        """Send the pulls that may be under way."""
        connection, template = self._connection, self._template
        frames: list[bytes] = []
        if 2 * len(self._asked) > self._depth:
            return  # several at a time cost both sides less
        while len(self._asked) < self._depth and self._next < self._end:
            offset = self._next
            most = min(self._end - offset, _MOST)
            if template:
                opaque = connection.expect()
                header = template % (offset, most, opaque)
                frames += (_PREFIX.pack(4 + len(header), len(header)), header)
            else:
                opaque = connection.submit(CODE, self._header(offset, most))
            self._asked.append((offset, opaque))
            self._next += self._step
            if not self._step:
                break
        if frames:
            connection.write(b"".join(frames), CODE)

    def take(self) -> Pulled:
        """Return the next answer; the following pulls are on their way by then."""
        offset, opaque = self._asked.popleft()
        answer = self._connection.wait(opaque, CODE)
        code = answer.code
        if code not in (ResponseCode.SUCCESS, *FOUND_NOTHING):
            self.drop()
            raise refusal(f"broker {self._queue.broker} at {self._connection.address}", CODE, answer)
        following = _following(answer)
        remark = answer.remark or ""
        if following > offset and (code == ResponseCode.SUCCESS or remark == NOTHING_WANTED):
            step = following - offset
            if step == self._step:
                self._depth = min(2 * self._depth, _DEEPEST)
            else:
                self.drop()
                self._depth = 1
                self._step = step
                self._next = following
            self._ask()
        else:
            self.drop()
        return Pulled(offset, following, code, remark, answer.body or b"")

    def drop(self) -> None:
        """Let all answers that are still to come go unheard."""
        for _, opaque in self._asked:
            self._connection.forget(opaque)
        self._asked.clear()


def _following(answer: RemotingCommand) -> int:
    fields = answer.ext_fields
    try:
        return int(fields["nextBeginOffset"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return header_of(PullMessageResponseHeader, answer).next_begin_offset  # says what is wrong
