"""Values that enter and leave the store.

Counterpart: `MessageExtBrokerInner`, `PutMessageStatus`/`AppendMessageResult`, `GetMessageStatus`/`GetMessageResult`,
`DispatchRequest` and `MessageFilter` (Apache). The classes are plain values, passed between threads and never changed
afterwards.
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

    - `born_timestamp` is in ms.
    - `born_host` is the address and a 4-byte port, 8 bytes for IPv4 and 20 for IPv6. Its length decides about bit 0x10
      of the stored sysFlag.
    - `properties` is Apache's property string in UTF-8.
    - `index_keys` are the keys of the index: each UNIQ_KEY, then each word of KEYS.
    - `tags_code` is the hash of the tag, or the delivery time in ms if the topic is SCHEDULE_TOPIC_XXXX.
    - `wait` tells whether the sender's answer waits for the disk.
    - `is_accepted` tells that the sender was answered long ago. A fault of its further queues then does not keep the
      message from its own queue.
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
    """Result of an append."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    STEPPED_DOWN = "STEPPED_DOWN"
    CREATE_MAPEDFILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGECACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"


class PutResult(msgspec.Struct, gc=False):
    """Answer to one appended message.

    - `physical_offset` is the offset of the record's first byte in the log, -1 if nothing was stored.
    - `queue_offset` is its number in the consume queue, -1 if nothing was stored.
    - `store_timestamp` is in ms, `size` in bytes; both are 0 if nothing was stored.
    - `cause` is the reason in one line if nothing was stored.
    """

    status: PutStatus
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = 0
    size: int = 0
    cause: str = ""


class GetStatus(enum.Enum):
    """Result of a read from a consume queue."""

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

    - `buffers` are views of whole records in the mapped log; adjacent records share a view.
    - `size` is their number of bytes, `count` their number of records.
    - `next_begin_offset` is the start of the next read.
    - `min_offset` and `max_offset` (exclusive) are the queue's.
    - `suggest_pulling_from_slave` is set if the reader is further behind than the share of memory that counts as
      recent.
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
    """Answer to a search by key: whole records in log order, and the end of the index (ms, physical offset)."""

    buffers: list[memoryview]
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class DispatchRequest(msgspec.Struct, gc=False):
    """Facts about an appended record for the consume queue, the index and waiting readers.

    Times are in ms, offsets and sizes in bytes, `queue_offset` in messages. `index_keys` is empty if the record is not
    indexed. `bitmap` has the matching filters, as far as they were evaluated, for extended queues.
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
"""Evaluates the filters for some records and sets their bitmaps."""

Arrival = tuple[str, int, int, int, int, bytes, bytes | None]
"""A message became visible: topic, queue id, new max offset of the queue (exclusive), tags code, store time in ms,
properties, bitmap of filters.
"""


class MessageFilter(Protocol):
    """A reader's choice of messages."""

    @property
    def tags_codes(self) -> frozenset[int] | None:
        """Hashes of the wanted tags. None takes all."""

    @property
    def matches_unit(self) -> "UnitFilter | None":
        """Filter on the queue's extension unit, called after the tags. None takes all."""

    @property
    def matches(self) -> "PropertiesFilter | None":
        """Filter on the properties, called last. None takes all."""


class UnitFilter(Protocol):
    """Filter on the unit of a queue's extension."""

    def __call__(self, store_timestamp: int, bitmap: bytes | None) -> bool:
        """Return whether a message with this store time in ms and this bitmap of filters may be wanted."""


class PropertiesFilter(Protocol):
    """Filter on a message's property string."""

    def __call__(self, properties: bytes) -> bool:
        """Return whether a message with these properties (Apache's property string in UTF-8) is wanted."""
