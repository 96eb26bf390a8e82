"""The broker as its subpackages see it, as types: the parts that every subpackage uses.

Each subpackage declares the parts it needs in a protocol in its ``parts.py``, which extends those of the subpackages
below. So a subpackage names no type of a subpackage above it. ``Broker`` provides all of them, as do the brokers of tests.
"""

from collections.abc import Callable
from typing import Protocol

from rocketd.broker.base.extensions import Extensions
from rocketd.broker.base.message_hooks import MessageHooks
from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.stamp_clock import StampClock
from rocketd.remoting.serving.audit import Audit
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.store.base.filesystem import IFileSystem
from rocketd.store.format.message import MessageInner
from rocketd.store.interfaces import IMessageStore


class CoreParts(Protocol):
    """Settings, clocks, the store and the lanes. Methods and properties: any thread."""

    settings: BrokerSettings
    dispatcher: Dispatcher
    file_system: IFileSystem
    stamps: StampClock
    message_hooks: MessageHooks
    extensions: Extensions
    audit: Audit
    store: IMessageStore
    store_host: bytes
    """Address and port in stored records and message ids: 8 or 20 bytes."""

    @property
    def advertised_host(self) -> str:
        """The host announced to clients."""

    @property
    def address(self) -> str:
        """Host and port announced to clients."""

    def now_ms(self) -> int:
        """Return Unix milliseconds, for timestamps to store or show."""

    def clock_ms(self) -> int:
        """Return monotonic milliseconds."""

    def slowest_recent_step(self) -> str:
        """Name the step sends waited for recently, with its measured time."""

    def disk_usage_text(self) -> str:
        """Return how full the disks of log, queues and index are, as in Apache's remark."""

    def when_registered(self, callback: Callable[[], None]) -> None:
        """Call back once the name servers know all changes so far, or after a while."""

    def register_with_name_servers(self, reason: str) -> None:
        """Register with every name server now; the reason is for the log."""


class Timing(Protocol):
    """The gate of timed messages, as the message builder uses it. Storage thread."""

    def time_to_come(self, topic: str, table: dict[str, str], now_ms: int) -> int | None:
        """Return the future time in ms that properties ask for; None if there is none. Raises RequestError."""

    def redirect(self, message: MessageInner, table: dict[str, str], now_ms: int) -> None:
        """Redirect a message with a future time to the topic in which it waits. Raises RequestError."""
