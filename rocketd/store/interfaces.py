"""The store as extensions see it, and the base of a store that wraps another one.

Counterpart: `MessageStore` and `AbstractPluginMessageStore` (Apache).
"""

from collections.abc import Sequence
from typing import Any

from zope.interface import Interface, implementer


class IMessageStore(Interface):
    """What a broker stores and reads messages with.

    ``start``, ``stop``: the thread that starts and stops the broker; ``put_messages``, ``put_batch``, ``delete_topic``:
    the storage thread; the others: any thread.
    """

    def start() -> None:
        """Lock, recover and open the store. Blocks."""

    def stop() -> None:
        """Flush and close the store. Blocks."""

    def put_messages(messages: Sequence[Any]) -> list[Any]:
        """Append messages (MessageInner) that are independent of each other; return a PutResult for each."""

    def put_batch(messages: Sequence[Any]) -> list[Any]:
        """Append all messages or none; return a PutResult for each."""

    def get_messages(topic: str, queue_id: int, offset: int, max_messages: int, message_filter: Any) -> Any:
        """Read from a queue offset on; return a GetResult. A filter (MessageFilter) decides which are wanted."""

    def look_message(physical_offset: int) -> memoryview | None:
        """Return the record that begins at an offset of the log, None if there is none."""

    def query_messages(topic: str, key: str, max_num: int, begin_ms: int, end_ms: int) -> Any:
        """Find records by key; return a QueryResult."""

    def get_min_offset(topic: str, queue_id: int) -> int:
        """Return the first offset of a queue, 0 if there is no such queue."""

    def get_max_offset(topic: str, queue_id: int) -> int:
        """Return the offset behind the last one of a queue, 0 if there is no such queue."""

    def get_offset_by_time(topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the first message that was stored at a time, or later."""

    def delete_topic(topic: str) -> None:
        """Delete the consume queues of a topic."""


@implementer(IMessageStore)
class StoreWrapper:
    """A store that passes everything on to the one it wraps. Subclasses override the methods that they change."""

    inner: Any

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        # An attribute of the store, such as a listener, has to reach the store.
        if hasattr(self.inner, name):
            setattr(self.inner, name, value)
        else:
            object.__setattr__(self, name, value)
