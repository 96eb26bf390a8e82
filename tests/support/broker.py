"""For tests of the broker's processors: a broker without threads and sockets, and a recording connection.

No counterpart in Apache. The tables and the store are the real ones; time is a Clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from zope.interface import implementer

from rocketd.broker.base.json_file import JsonFile, JsonFiles
from rocketd.broker.base.settings import BrokerSettings
from rocketd.broker.clients.broker_to_client import BrokerToClient
from rocketd.broker.parts import make_parts
from rocketd.common.stamp_clock import StampClock
from rocketd.common.table_writer import TableWriter
from rocketd.remoting.interfaces import IConnection
from rocketd.remoting.serving.audit import Audit
from rocketd.remoting.serving.dispatch import Dispatcher
from rocketd.remoting.serving.pools import Job
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import audit_path, config_dir
from rocketd.store.base.running_flags import DISK_FULL
from rocketd.store.log.flush import FlushCallback
from rocketd.store.message_store import MessageStore
from rocketd.store.state.audit_file import AuditFile

STORE_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
BORN_HOST = b"\x7f\x00\x00\x01\x00\x00\x10\x01"


@implementer(IConnection)
class RecordingConnection:
    """Records the commands written to it. ``host`` has 8 or 20 bytes."""

    def __init__(self, address: str = "127.0.0.1:4097", host: bytes = BORN_HOST) -> None:
        self.address = address
        self.host = host
        self.closed = False
        self.behind = False
        self.written: list[bytes] = []

    def send(self, command: RemotingCommand) -> None:
        """As the real one."""
        self.write((command.encode(),))

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """As the real one."""
        self.written.append(b"".join(buffers))

    def close(self) -> None:
        """As the real one."""
        self.closed = True

    def answers(self) -> list[RemotingCommand]:
        """Take the commands written since the last call."""
        data, self.written = b"".join(self.written), []
        return [RemotingCommand.decode(frame) for frame in FrameDecoder().feed(data)]

    def answer(self) -> RemotingCommand:
        """Take the only command written since the last call."""
        (answer,) = self.answers()
        return answer


class InlineDispatcher(Dispatcher):
    """A dispatcher whose pools and reactor are the caller. ``delay`` makes pools keep their calls until ``run``."""

    queued_requests = 7
    loop = None
    after_jobs = None

    def head_wait_ms(self, now_ms: int) -> int:
        """As of the real pool, with a fixed value."""
        return 11

    def __init__(self) -> None:
        super().__init__(lambda function, *arguments: function(*arguments))
        self.delay = False
        self.calls: list[tuple[str, Callable[[], None]]] = []
        self._name = ""

    def pool(self, name: str) -> Any:
        """Name the pool of the next ``call``."""
        self._name = name
        return self

    def call(self, function: Callable[[], None]) -> None:
        """Run a function, or keep it."""
        self.calls.append((self._name, function))
        if not self.delay:
            self.run()

    def run(self) -> list[str]:
        """Run the kept calls; returns the names of their pools."""
        calls, self.calls = self.calls, []
        for _, function in calls:
            function()
        return [name for name, _ in calls]


class RecordingReplication:
    """Stands for slaves: records the waiting calls, each with offset and callback."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, FlushCallback]] = []

    def when_replicated(self, end_offset: int, callback: FlushCallback) -> None:
        """Keep a callback."""
        self.waiting.append((end_offset, callback))

    def table(self) -> dict[str, str]:
        """As the real one, when there are slaves."""
        return {"haSlavesBehindBytes": "7"}


class RecordingInvoke:
    """Stands for the invoke layer: records each request with its connection and timeout. ``waiting`` are the Deferreds
    of the requests with an answer, in their order, for the test to fire.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[IConnection, RemotingCommand, float]] = []
        self.waiting: list[Deferred[RemotingCommand]] = []

    def oneway_from_thread(self, connection: IConnection, request: RemotingCommand, timeout_ms: float) -> None:
        """Keep a request."""
        self.sent.append((connection, request, timeout_ms))

    def from_thread(self, invoke: Callable[..., Deferred[Any]], *arguments: Any) -> Deferred[Any]:
        """Call a function at once."""
        return invoke(*arguments)

    def in_executor(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Call a function at once."""
        return maybeDeferred(function, *arguments)

    def invoke_async(
        self, connection: IConnection, request: RemotingCommand, timeout_ms: float
    ) -> Deferred[RemotingCommand]:
        """Record a request; return the Deferred of its answer."""
        self.sent.append((connection, request, timeout_ms))
        self.waiting.append(Deferred())
        return self.waiting[-1]

    invoke_sync = invoke_async


class SmallBroker:
    """A broker's tables and store in a directory. ``start`` opens the store, ``stop`` writes and closes everything."""

    access = None

    def __init__(self, directory: str, clock: Clock | None = None, **options: str) -> None:
        self.clock = clock or Clock()
        if clock is None:
            self.clock.advance(1_795_000_000)
        given = {
            "storePathRootDir": directory,
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "mappedFileSizeCommitLog": str(1 << 20),
            "mappedFileSizeConsumeQueue": "6000",
            "maxHashSlotNum": "100",
            "maxIndexNum": "400",
            "diskMaxUsedSpaceRatio": "99",
            **options,
        }
        self.wall_steps = 0.0
        """By how many seconds the wall clock was set forward."""
        self.stamps = StampClock(lambda: self.now_ms() / 1000, self.clock.seconds)
        self.settings, _ = BrokerSettings.load(None, list(given.items()))
        self.settings.store.disk_space_warning_level_ratio = 1.0  # independent of the machine's disk
        self.file_system = RealFileSystem()
        # Changes are written at once, unless a test starts it.
        self.table_writer = TableWriter()
        self.dispatcher = InlineDispatcher()
        self.invoke = RecordingInvoke()
        self.audit = Audit(AuditFile(self.file_system, audit_path(directory)), self.now_ms)
        to_clients = BrokerToClient(self.settings.broker, self.invoke)
        parts = make_parts(self, to_clients, self.table_writer, self.clock.seconds)
        for field in fields(parts):
            setattr(self, field.name, getattr(parts, field.name))
        self.held_pull_checks: list[Callable[[], None]] = []
        self.advertised_host = "127.0.0.1"
        self.address = "127.0.0.1:10911"
        self.ha_address = "127.0.0.1:10912"
        self.store_host = STORE_HOST
        self.replication = RecordingReplication()
        self.store = MessageStore(
            self.settings.store,
            STORE_HOST,
            clock=lambda: self.now_ms() / 1000,
            monotonic=self.clock.seconds,
            stamps=self.stamps.now,
            delay_time_of=self.delay_levels.deliver_ms,
        )

    def json_file(self, name: str, content_type: type) -> JsonFile:
        """Make the holder of a file in ``config/``."""
        return JsonFiles(config_dir(self.settings.store.store_path_root_dir), self.file_system).file(
            name + ".json", content_type
        )

    def start(self) -> None:
        """Open the store and read the tables."""
        self.filters.load()
        self.store.set_bitmap_maker(self.filters.make_bitmaps)
        self.store.put_listener = self.stats.puts_took
        self.store.start()
        for table in (self.topics, self.groups, self.offsets, self.schedule):
            table.load()

    def stop(self) -> None:
        """Write the tables and close the store."""
        for table in (self.topics, self.groups, self.offsets, self.schedule, self.filters):
            table.persist()
        self.store.stop()

    def now_ms(self) -> int:
        """The time of the clock, with its steps."""
        return int((self.clock.seconds() + self.wall_steps) * 1000)

    def clock_ms(self) -> int:
        """The time of the same clock, without steps."""
        return int(self.clock.seconds() * 1000)

    def set_disk_full(self, full: bool) -> None:
        """Refuse or take messages, as if the disk were full or not; the store's own measurements say the same."""
        self.settings.store.disk_space_warning_level_ratio = -1.0 if full else 1.0
        self.store.flags.set(DISK_FULL, full)

    def settle(self) -> None:
        """Return once all stored messages can be read."""
        while self.store.dispatch_behind_bytes():
            pass

    def slowest_recent_step(self) -> str:
        """As the real one, with a fixed value."""
        return "append to the log, 12 ms"

    def disk_usage_text(self) -> str:
        """As the real one, with a fixed value."""
        return "CL:  0.50 CQ:  0.50 INDEX:  0.50"


def job_of(handler: Any, connection: RecordingConnection, *commands: RemotingCommand | bytes, age_ms: int = 0) -> Job:
    """Make the job of commands, or of frames as they are on the wire, that were read ``age_ms`` ago."""
    broker = getattr(handler, "_broker", None)
    clock_ms = (lambda: monotonic() * 1000) if broker is None else broker.clock_ms
    data = b"".join([command if isinstance(command, bytes) else command.encode() for command in commands])
    return Job(handler, connection, FrameDecoder().feed(data), int(clock_ms()) - age_ms)
