"""Turns rows into messages: the meaning of each column, and every limit for which a broker would refuse a message.

Counterpart: `Validators`, `DefaultMQProducerImpl` (Apache).
"""

import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from rocketd.common import message_properties as props
from rocketd.common.message_properties import MAX_LENGTH, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, encode_properties
from rocketd.common.names import BROKER_ONLY_TOPICS, RETRY_PREFIX, topic_fault
from rocketd.common.sysflag import COMPRESSED, COMPRESSION_MASK
from rocketd.protocol.batch import RECORD_OVERHEAD
from rocketd.protocol.compression import compress
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.options import BY_COLUMN, BY_KEY, EFFECTIVELY_ONCE, TRANSACTIONAL, WriteOptions
from rocketd.spark.sink.problems import RowError
from rocketd.spark.sink.write_columns import SET_BY_OTHERS, USED_COLUMNS, check_columns

ADDED_BY_BROKERS: Final = 512
"""Bytes of properties reserved for brokers, which add some, and for the writer's sequence number."""
PROPERTIES_LIMIT: Final = MAX_LENGTH - ADDED_BY_BROKERS

_INTS: Final = range(-(2**31), 2**31)
_NEVER_TOGETHER: Final = (RETRY_PREFIX,)
_DELAYS: Final = frozenset({props.DELAY, props.TIMER_DELIVER_MS, props.TIMER_DELAY_MS, props.TIMER_DELAY_SEC})


class RowReader:
    """Makes messages from a task's rows.

    `next_key` returns unique keys, `where` names the rows in errors: "partition 3".

    Raises OptionError for unsuitable columns.
    """

    def __init__(self, schema: pa.Schema, options: WriteOptions, next_key: Callable[[], str], where: str) -> None:
        check_columns(schema, options)
        self._names = schema.names
        self._options = options
        self._next_key = next_key
        self._where = where
        self._row = 0
        self._good_topics: set[str] = set()
        self._may_delay = options.delivery not in (TRANSACTIONAL, EFFECTIVELY_ONCE)

    def read(self, batch: pa.RecordBatch) -> Iterator[Outgoing]:
        """Return the messages of a batch, in order.

        A RowError is raised before any is returned, so that no part is sent.
        """
        columns = {name: batch.column(at).to_pylist() for at, name in enumerate(self._names) if name in USED_COLUMNS}
        messages = []
        for position in range(batch.num_rows):
            row = {name: values[position] for name, values in columns.items()}
            try:
                messages.append(self._message(row))
            except ValueError as error:
                raise RowError(f"row {self._row} of {self._where} cannot be sent: {error}") from None
            self._row += 1
        return iter(messages)

    def _message(self, row: dict[str, Any]) -> Outgoing:
        topic = self._topic(row)
        body = row["body"]
        if isinstance(body, str):
            body = body.encode()
        if not body:
            raise ValueError("its body is null or empty, and the protocol has no messages without one")
        limit = self._options.max_message_size
        if len(body) > limit:
            raise ValueError(f"its body has {len(body)} bytes, more than maxMessageSize, which is {limit}")
        table = self._properties(row, topic)
        packed, sys_flag = self._packed(body, row)
        text = encode_properties(table).encode()
        if len(text) > PROPERTIES_LIMIT:
            raise ValueError(
                f"tags, keys and properties have {len(text)} bytes together, more than {PROPERTIES_LIMIT} (the limit is "
                f"{MAX_LENGTH}, and brokers add some)"
            )
        size = len(packed) + len(text) + len(topic) + ADDED_BY_BROKERS + RECORD_OVERHEAD
        if size > limit:
            raise ValueError(
                f"with its properties it has up to {size} bytes, more than maxMessageSize, which is {limit}"
            )
        single = bool(sys_flag) or topic.startswith(_NEVER_TOGETHER) or not _DELAYS.isdisjoint(table)
        flag = self._number(row, "flag", 0)
        queue = self._queue(row)
        return Outgoing(topic, packed, text, flag, sys_flag, single, *queue)

    def _topic(self, row: dict[str, Any]) -> str:
        topic: str = self._options.topic or row["topic"]
        if topic not in self._good_topics:
            if topic is None:
                raise ValueError("its topic is null, and the option topic is missing")
            if topic_fault(topic) or topic in BROKER_ONLY_TOPICS:
                raise ValueError(f"its topic is {topic!r}: {topic_fault(topic) or 'only brokers send to it'}")
            self._good_topics.add(topic)
        return topic

    def _queue(self, row: dict[str, Any]) -> tuple[str | None, int | None, str | None]:
        """Return key, queue id and broker for the choice of the queue."""
        selector = self._options.queue_selector
        if selector == BY_KEY:
            key = row["queue_key"] if "queue_key" in row else row["keys"]
            return (_joined(key) or None, None, None)
        if selector == BY_COLUMN:
            queue_id = self._number(row, "queue_id", None)
            if queue_id is None:
                raise ValueError("its queue_id is null, and queueSelector is column")
            return None, queue_id, row.get("broker")
        return None, None, None

    def _properties(self, row: dict[str, Any], topic: str) -> dict[str, str]:
        table: dict[str, str] = {}
        for name, value in row.get("properties") or ():
            # A message for the retry topic of a group must name its origin.
            if name not in SET_BY_OTHERS or (name == props.RETRY_TOPIC and topic.startswith(RETRY_PREFIX)):
                table[_text("a property's name", name)] = _text(f"property {name!r}", value)
        if props.TIMER_OUT_MS in table:
            # The timer has already delivered this message.
            table = {name: value for name, value in table.items() if not name.startswith("TIMER_")}
        for column, name in (("tags", props.TAGS), ("keys", props.KEYS), ("uniq_key", props.UNIQ_KEY)):
            value = _joined(row.get(column))
            if value:
                table[name] = _text(f"column {column}", value)
        level = self._number(row, "delay_level", 0)
        if level < 0:
            raise ValueError(f"its delay_level is {level}, below zero")
        if level:
            table[props.DELAY] = str(level)
        moment = row.get("deliver_time")
        if moment is not None:
            table[props.TIMER_DELIVER_MS] = str(_milliseconds(moment))
        if not self._may_delay and not _DELAYS.isdisjoint(table):
            raise ValueError(f"it has a delay, which only delivery=at-least-once can do, not {self._options.delivery}")
        if props.UNIQ_KEY not in table:
            table[props.UNIQ_KEY] = self._next_key()
        table[props.WAIT] = "true"
        return table

    def _packed(self, body: bytes, row: dict[str, Any]) -> tuple[bytes, int]:
        """Return the body as sent, and its bits of sysFlag."""
        was = row.get("sys_flag") or 0
        if was & COMPRESSED and row.get("body_crc") == zlib.crc32(body) & 0x7FFFFFFF:
            # Read with decompress=false: it is the compressed body of the broker.
            return body, was & (COMPRESSED | COMPRESSION_MASK)
        over = self._options.compress_over
        if not over or len(body) < over:
            return body, 0
        return compress(body)

    def _number(self, row: dict[str, Any], column: str, default: object) -> Any:
        value = row.get(column)
        if value is None:
            return default
        if value not in _INTS:
            raise ValueError(f"its {column} is {value}, which 32 bits do not hold")
        return value


def _joined(value: Any) -> str | None:
    """Return a text, or words joined by blanks."""
    if value is None or isinstance(value, str):
        return value
    if any(not word or " " in word for word in value):
        raise ValueError(f"its keys are {value!r}: a key is not empty and has no blank: blanks separate keys")
    return " ".join(value)


def _text(what: str, text: str | None) -> str:
    if not text:
        raise ValueError(f"{what} is null or empty, which the protocol cannot carry")
    if NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text:
        raise ValueError(f"{what} is {text!r}: \\x01 and \\x02 separate properties")
    return text


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
