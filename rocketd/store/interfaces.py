"""The store as extensions see it, and the base class of a store that wraps another.

Counterpart: `MessageStore` and `AbstractPluginMessageStore` (Apache).
"""

from collections.abc import Callable, Sequence
from typing import Any

from zope.interface import Attribute, Interface, implementer

from rocketd.common.event_loop.loop_lag import LagHistogram
from rocketd.store.format.message import BitmapMaker, GetResult, MessageFilter, MessageInner, PutResult, QueryResult
from rocketd.store.log.flush import FlushCallback
from rocketd.store.queue.consume_queue import ConsumeQueue


class IMessageStore(Interface):
    """The interface between a broker and its store. Offsets of the log are bytes, times are Unix milliseconds.

    Threads:

    - ``start``, ``stop``: the thread that starts and stops the broker.
    - ``put_messages``, ``put_batch``, ``release_dispatch``, ``delete_topic``, ``delete_expired_queues``,
      ``begin_replica``, ``append_replica``: the storage thread. On a slave, ``append_replica`` and ``release_dispatch``
      may also be called by the thread that receives the master's log.
    - ``add_...``, ``set_...`` and the attributes set by the broker: before ``start``.
    - Everything else: any thread.
    """

    put_listener: Callable[[int, float], None] | None = Attribute(
        "Set by the broker: a function called on the storage thread with (number of puts completed, milliseconds). "
        "None without a listener."
    )
    holds_dispatch: bool = Attribute("Set by the broker: whether puts become visible at ``release_dispatch`` only.")
    dispatch_blockers: Callable[[bool], str] = Attribute(
        "Set by the broker: a function that names third-party calls that block dispatch. With True, it names only "
        "calls abandoned by a stop. ``stop`` calls it."
    )
    is_awaited: Callable[[str, int], bool] = Attribute(
        "Set by the broker: a function that returns whether a reader waits for the next message of a queue, given its "
        "topic and queue id. Other messages may become visible some milliseconds later."
    )
    messages_put: int = Attribute("Messages stored since the start.")
    bytes_put: int = Attribute("Bytes of the log used by them.")
    puts_failed: int = Attribute("Messages refused since the start.")
    last_append_ms: float = Attribute("Duration of the last append in milliseconds.")
    last_flush_ms: float = Attribute("Duration of the last flush of the log in milliseconds.")
    flush_failed: bool = Attribute("Whether a flush has failed. No messages are accepted until a restart then.")
    append_times: LagHistogram = Attribute("Durations of the appends, each of a group of messages.")
    flush_times: LagHistogram = Attribute("Durations of the flushes of the log.")

    def start() -> None:
        """Lock, recover and open the store. Blocks."""

    def stop() -> None:
        """Flush and close the store. Blocks."""

    # ------------------------------------------------------------ put

    def put_messages(messages: Sequence[MessageInner]) -> list[PutResult]:
        """Append independent messages. Return a result for each."""

    def put_batch(messages: Sequence[MessageInner]) -> list[PutResult]:
        """Append all messages or none. Return a result for each."""

    def release_dispatch(idle: bool) -> bool:
        """Make the held puts visible. ``idle`` tells that the storage thread has nothing else to do.

        Without it, some may stay held for some milliseconds. Return whether any do.
        """

    def refusal() -> PutResult | None:
        """Return why messages are refused now, None if they are accepted."""

    def refuse_puts(why: str) -> None:
        """Refuse messages from now on."""

    def accept_puts() -> None:
        """Accept messages again after ``refuse_puts``."""

    def append_lock_ms() -> float:
        """Return how long the running append has taken so far, 0 without one."""

    def is_os_page_cache_busy() -> bool:
        """Return whether an append hangs for longer than osPageCacheBusyTimeOutMills."""

    def when_flushed(end_offset: int, callback: FlushCallback) -> None:
        """Call back with a PutStatus once the log is on disk up to an offset, or syncFlushTimeout is over."""

    def wait_until_flushed(end_offset: int) -> bool:
        """Wait until the log is on disk up to an offset, at most syncFlushTimeout. Return whether it is."""

    # ------------------------------------------------------------ get

    def get_messages(
        topic: str, queue_id: int, offset: int, max_messages: int, message_filter: MessageFilter | None
    ) -> GetResult:
        """Read from a queue offset on. A filter chooses the messages."""

    def look_message(physical_offset: int) -> memoryview | None:
        """Return the record that begins at an offset of the log, None if none does."""

    def query_messages(topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> QueryResult:
        """Find records by key and store time."""

    def get_min_offset(topic: str, queue_id: int) -> int:
        """Return the first offset of a queue, 0 if it does not exist."""

    def get_max_offset(topic: str, queue_id: int) -> int:
        """Return the offset after the last one of a queue, 0 if it does not exist."""

    def get_offset_by_time(topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at a time or later."""

    def get_earliest_time(topic: str, queue_id: int) -> int:
        """Return the store time of the first message of a queue, -1 without one."""

    def get_store_time(topic: str, queue_id: int, offset: int) -> int:
        """Return the store time of the message at a queue offset, -1 without one."""

    def queue_keys() -> list[tuple[str, int]]:
        """Return the topic and queue id of every queue."""

    def queue_entries(topic: str, queue_id: int, offset: int, limit: int) -> list[tuple[int, int, int]]:
        """Return at most ``limit`` entries of a queue from an offset on: offset in the log, size, tags code."""

    def message_of(
        topic: str, queue_id: int, offset: int, entry: tuple[int, int, int]
    ) -> tuple[tuple[int, int, int], memoryview] | None:
        """Return an entry of ``queue_entries`` with its record, corrected if the entry is damaged. None if it is gone.

        Raises RecordSoughtError while the log is searched for it: each call searches another part.
        """

    def consume_queue(topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue for QUERY_CONSUME_QUEUE, None if it does not exist."""

    def is_on_disk(topic: str, queue_id: int, offset: int) -> bool:
        """Return whether a message probably has to be read from the disk. False if the message does not exist."""

    # ------------------------------------------------------------ the log

    def min_physical_offset() -> int:
        """Return the offset of the first byte of the log, -1 if nothing was ever stored."""

    def max_physical_offset() -> int:
        """Return the offset after the last byte of the log."""

    def flushed_offset() -> int:
        """Return the offset up to which the log is on disk."""

    def dispatch_behind_bytes() -> int:
        """Return the number of bytes of the log not visible to readers yet."""

    def disk_ratio() -> float:
        """Return the used share of the log's disk, 0 to 1."""

    def log_data_from(offset: int) -> memoryview | None:
        """Return the log's bytes from an offset to the end of that file, None if they are not there."""

    # ------------------------------------------------------------ listeners

    def add_dispatcher(dispatch: Callable[[Sequence[Any]], None]) -> None:
        """Call a function with each group of records (DispatchRequest) after they got their entries."""

    def add_arrival_listener(listener: Callable[[Sequence[Any]], None]) -> None:
        """Call a function with the messages (Arrival) that became visible.

        The only listener is not called if no reader waits for any of them (``is_awaited``).
        """

    def add_append_listener(listener: Callable[[], None]) -> None:
        """Call a function on the storage thread whenever the log has grown."""

    def set_bitmap_maker(make_bitmaps: BitmapMaker) -> None:
        """Set the function that evaluates the filters for dispatched messages."""

    # ------------------------------------------------------------ deletion

    def delete_topic(topic: str) -> None:
        """Delete the consume queues of a topic."""

    def was_deleted(topic: str, offset: int, stored_ms: int) -> bool:
        """Return whether a topic was deleted after its record at an offset of the log was stored."""

    def delete_expired_queues() -> list[tuple[str, int]]:
        """Delete the queues whose messages have all left the log. Return topic and queue id of each."""

    def execute_delete_files_manually() -> None:
        """Delete expired files soon, at any hour."""

    # ------------------------------------------------------------ replication

    def begin_replica() -> int:
        """Prepare for a master's bytes. Return the offset to request them from."""

    def append_replica(offset: int, data: bytes) -> int:
        """Append a master's bytes. Return the offset up to which this log is known to equal the master's."""


@implementer(IMessageStore)
class StoreWrapper:
    """A store that forwards everything to the wrapped one. Subclasses override the methods they change."""

    inner: Any

    def __init__(self, inner: object) -> None:
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        # Attributes of the store, such as listeners, must reach the store.
        if hasattr(self.inner, name):
            setattr(self.inner, name, value)
        else:
            object.__setattr__(self, name, value)
