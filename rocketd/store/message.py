"""What goes into the store and what comes out of it.

Answers to Apache's `MessageExtBrokerInner`, `PutMessageStatus`/`AppendMessageResult`,
`GetMessageStatus`/`GetMessageResult`, `DispatchRequest` and `MessageFilter`. The classes are plain values without
behaviour, handed between threads and never changed afterwards.
"""

import enum
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

SYS_FLAG_TRANSACTION_PREPARED = 0x4
SYS_FLAG_TRANSACTION_COMMIT = 0x8
SYS_FLAG_TRANSACTION_ROLLBACK = 0xC
SYS_FLAG_TRANSACTION_MASK = 0xC
SYS_FLAG_BORN_HOST_V6 = 0x10
SYS_FLAG_STORE_HOST_V6 = 0x20


class MessageInner(msgspec.Struct, gc=False):
    """A message ready to be appended.

    `born_timestamp` is in ms. `born_host` is the address and a 4-byte port, 8 bytes for IPv4 and 20 for IPv6; its
    length decides about bit 0x10 of the stored sysFlag. `properties` is Apache's property string in UTF-8.
    `index_keys` is what is to be found by key: each UNIQ_KEY, then each word of KEYS. `tags_code` is the hash of
    the tag, or the delivery time in ms where the topic is SCHEDULE_TOPIC_XXXX. `wait` says whether the sender's
    answer waits for the disk. `is_accepted` says that its sender was answered long ago: what stands against its further
    queues does not keep it from its own.
    """

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: bytes
    tags_code: int
    index_keys: tuple[str, ...] = ()
    wait: bool = True
    is_accepted: bool = False


class PutStatus(enum.Enum):
    """How an append ended."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"


class PutResult(msgspec.Struct, gc=False):
    """Answer to one appended message.

    `physical_offset` is the first byte of the record in the log, `queue_offset` its number in the consume queue,
    `store_timestamp` ms, `size` the bytes of the record; the numbers are -1 and 0 where nothing was stored, and
    `cause` then says why in one line.
    """

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = 0
    size: int = 0
    cause: str = ""


class GetStatus(enum.Enum):
    """How a read of a consume queue ended."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(msgspec.Struct):
    """Answer to a read.

    `buffers` are views of whole records in the mapped log, adjacent records in one view; `size` is their bytes,
    `count` the records in them. The next read should start at `next_begin_offset`. `min_offset` and `max_offset`
    are the queue's, the second exclusive. `suggest_pulling_from_slave` is set when the reader is further behind
    than the memory is wide.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    buffers: list[memoryview] = []
    size: int = 0
    count: int = 0
    suggest_pulling_from_slave: bool = False


class QueryResult(msgspec.Struct):
    """Answer to a search by key: whole records in the order of the log, and how far the index reaches (ms, physical
    offset).
    """

    buffers: list[memoryview]
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class DispatchRequest(msgspec.Struct, gc=False):
    """What the consume queue, the index and the waiting readers need to know about an appended record.

    Times in ms, offsets and sizes in bytes, `queue_offset` in messages. `index_keys` is empty where nothing is to
    be indexed. `bitmap` tells which filters match, as far as that was found out; it is for extended queues.
    """

    topic: str
    queue_id: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    index_keys: tuple[str, ...]
    sys_flag: int
    prepared_transaction_offset: int
    properties: bytes
    bitmap: bytes | None = None


BitmapMaker = Callable[[Sequence[DispatchRequest]], None]
"""Finds out which filters match some records, and sets their bitmaps."""

Arrival = tuple[str, int, int, int, int, bytes, bytes | None]
"""A message became visible: topic, queue id, the queue's new exclusive max offset, tags code, store time in ms,
properties, bitmap of filters.
"""


class MessageFilter(Protocol):
    """Which messages a reader wants."""

    @property
    def tags_codes(self) -> frozenset[int] | None:
        """Hashes of the wanted tags; None takes all."""

    @property
    def matches_unit(self) -> "UnitFilter | None":
        """Judge of a message by what an extended queue has of it, asked after the tags; None takes all."""

    @property
    def matches(self) -> "PropertiesFilter | None":
        """Judge of a message by its properties, asked last; None takes all."""


class UnitFilter(Protocol):
    """Judges a message by the unit of its queue's extension."""

    def __call__(self, store_timestamp: int, bitmap: bytes | None) -> bool:
        """Whether a message with this store time in ms and this bitmap of filters may be wanted."""


class PropertiesFilter(Protocol):
    """Judges a message by its property string."""

    def __call__(self, properties: bytes) -> bool:
        """Whether a message with these properties (Apache's property string in UTF-8) is wanted."""
