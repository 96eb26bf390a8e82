"""Pulls of one queue, with several requests in flight.

The answer to a pull tells where the next one begins. As long as all answers have the same number of messages, the next
offsets can be predicted. Brokers that cut answers at 32 messages behave this way. The predicted pulls are sent
together, so that the broker works while the task does. A shorter answer makes the predictions wrong, and the answers in
flight are dropped.
"""

from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import Final

from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import SQL92, compile_selector
from rocketd.protocol.pull import ANY_TAG, BY_TAG, PULLED, pull_header
from rocketd.remoting.bodies.tables import SubscriptionData
from rocketd.remoting.headers.client import PullMessageRequestHeader, PullMessageResponseHeader, write_header
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.spark.errors import OptionError
from rocketd.spark.ranges import Queue, ReadPlan
from rocketd.spark.wire.connection import BlockingConnection
from rocketd.spark.wire.faults import header_of, refusal

CODE: Final = RequestCode.PULL_MESSAGE

NOTHING_WANTED: Final = "NO_MATCHED_MESSAGE"
"""The remark of an answer without messages: the filter rejected all messages that the broker examined."""

_DEEPEST: Final = 16
"""The most pulls in flight."""

_MAX: Final = 1024
"""Messages requested by one pull; brokers apply a lower limit."""

_PREFIX = Struct(">II")
_OFFSET_MARK: Final = 1 << 62
_MAX_MARK: Final = (1 << 30) + 7
_OPAQUE_MARK: Final = (1 << 30) + 3
"""Numbers that no real request uses. The template of a pull has them as placeholders."""


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """An answer: the requested offset, the offset to go on from, code, remark and records."""

    start: int
    following: int
    code: int
    remark: str
    records: bytes

    @property
    def found(self) -> bool:
        """Whether the answer has records."""
        return self.code == ResponseCode.SUCCESS


def subscription(plan: ReadPlan) -> tuple[str, str]:
    """Return type and text of the filter for the broker. Tags that the syntax cannot express are left to the reader.

    Raises OptionError for invalid SQL92, because Apache's brokers would send all messages.
    """
    if plan.sql92:
        check_sql92(plan.sql92)
        return SQL92, plan.sql92
    tags = plan.tags
    if tags is None or any(not tag.strip() or "|" in tag or tag != tag.strip() or tag == ANY_TAG for tag in tags):
        return BY_TAG, ANY_TAG
    return BY_TAG, " || ".join(sorted(tags))


def check_sql92(text: str) -> None:
    """Raise OptionError for an invalid SQL92 expression."""
    try:
        end = compile_selector(SQL92, text).end
    except SelectorError as error:
        raise OptionError(f"the SQL92 filter {text!r} cannot be read: {error}") from error
    if text[end:].strip():
        raise OptionError(
            f"the SQL92 filter {text!r} is whole before {text[end:]!r}: leave that out, or join it by AND"
        )


class PipelinedPulls:
    """Pulls one queue from one broker, over one connection. Raises NoAnswerError, and ClusterError for refusals.

    `start` and `end` bound the offsets; `kind` and `expression` are the result of `subscription`. After an answer that
    is neither found nor `NOTHING_WANTED`, no pull is in flight, and the object must not be used again.
    """

    def __init__(
        self, connection: BlockingConnection, queue: Queue, start: int, end: int, group: str, kind: str, expression: str
    ) -> None:
        self._connection = connection
        self._queue = queue
        self._group = group
        self._subscription = SubscriptionData(queue.topic, expression, expression_type=kind)
        self._end = end
        self._next = start
        self._step = 0
        self._depth = 1
        self._asked: deque[tuple[int, int]] = deque()
        self._template = b"" if connection.signs else self._make_template()
        self._ask()

    def _header(self, offset: int, limit: int) -> PullMessageRequestHeader:
        return pull_header(self._group, self._queue, self._subscription, offset, limit)

    def _make_template(self) -> bytes:
        command = RemotingCommand(CODE, write_header(self._header(_OFFSET_MARK, _MAX_MARK)), opaque=_OPAQUE_MARK)
        text = command.encode_header(0)[_PREFIX.size :].replace(b"%", b"%%")
        for mark in (_OFFSET_MARK, _MAX_MARK, _OPAQUE_MARK):
            if text.count(b"%d" % mark) != 1:
                raise AssertionError("a mark is missing or repeated in the header")
        # Fields are in the order of the header's fields, and the opaque number comes after them.
        return (
            text.replace(b"%d" % _OFFSET_MARK, b"%d")
            .replace(b"%d" % _MAX_MARK, b"%d")
            .replace(b"%d" % _OPAQUE_MARK, b"%d")
        )

    def _ask(self) -> None:
        """Send as many pulls as may be in flight."""
        connection, template = self._connection, self._template
        frames: list[bytes] = []
        if 2 * len(self._asked) > self._depth:
            return  # sending several at a time costs both sides less
        while len(self._asked) < self._depth and self._next < self._end:
            offset = self._next
            limit = min(self._end - offset, _MAX)
            if template:
                opaque = connection.expect()
                header = template % (offset, limit, opaque)
                frames += (_PREFIX.pack(4 + len(header), len(header)), header)
            else:
                opaque = connection.submit(CODE, self._header(offset, limit))
            self._asked.append((offset, opaque))
            self._next += self._step
            if not self._step:
                break
        if frames:
            connection.write(b"".join(frames), CODE)

    def take(self) -> PullAnswer:
        """Return the next answer, after sending the following pulls."""
        offset, opaque = self._asked.popleft()
        answer = self._connection.wait(opaque, CODE)
        code = answer.code
        if code not in PULLED:
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
        return PullAnswer(offset, following, code, remark, answer.body or b"")

    def drop(self) -> None:
        """Drop all answers still in flight."""
        for _, opaque in self._asked:
            self._connection.forget(opaque)
        self._asked.clear()


def _following(answer: RemotingCommand) -> int:
    fields = answer.ext_fields
    try:
        return int(fields["nextBeginOffset"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return header_of(PullMessageResponseHeader, answer).next_begin_offset  # raises with the exact fault
