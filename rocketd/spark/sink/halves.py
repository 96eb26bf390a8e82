"""Delivery in transactions: tasks send half messages, which nobody sees, and the driver commits those of the attempts
that won.

A second end of a half message shows it a second time, at Apache's brokers and at rocketd's. So an end whose answer did
not come is looked for in the message's queue, by the offset of its half message, before it is sent again.

No producer is there to be asked about half messages: the process of a task ends with it. Those of an attempt that failed
are rolled back by itself, those of one that was killed or too slow at the end of the write, as far as they are found.
What is left stays hidden: brokers drop it when they have asked in vain often enough (transactionCheckMax times, by default
a quarter of an hour).
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from time import sleep
from typing import Final

from rocketd.common import properties as names
from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.common.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, find_property
from rocketd.common.sysflag import TRANSACTION_PREPARED
from rocketd.spark.errors import BrokerError, DataLossError
from rocketd.spark.ranges import Queue, QueueRange, ReadPlan
from rocketd.spark.sink.cluster_outlet import ClusterOutlet, request_of
from rocketd.spark.sink.message import TRANSACTION, Outgoing
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.pace import Pace
from rocketd.spark.sink.problems import SinkError
from rocketd.spark.sink.queue_choice import QueueChooser
from rocketd.spark.wire.read import read_range
from rocketd.spark.wire.transactions import Half, Transactions

_CHUNK: Final = 512
"""Most half messages that are sent between two looks at what became of them."""
_ENDED_AT_ONCE: Final = 16384
"""Half messages that are in memory one by one: a write may have many millions."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """The half messages of one attempt, as its commit message carries them: 18 bytes each, and the queues they are for."""

    queues: tuple[Queue, ...]
    places: "array[int]"
    state_offsets: "array[int]"
    log_offsets: "array[int]"

    def __len__(self) -> int:
        return len(self.places)

    def halves(self, group: str) -> Iterator[Half]:
        """Each half message, in the order of the rows."""
        for place, state_offset, log_offset in zip(self.places, self.state_offsets, self.log_offsets, strict=True):
            yield _half_at(self.queues[place], group, state_offset, log_offset)


def _half_at(queue: Queue, group: str, state_offset: int, log_offset: int) -> Half:
    """What an end has to name. Ids are for the broker's log alone."""
    return Half(
        broker=queue.broker,
        topic=queue.topic,
        group=group,
        state_offset=state_offset,
        commit_log_offset=log_offset,
        unique_key="",
        transaction_id="",
        queue_id=queue.queue_id,
    )


class Preparing:
    """Sends one task's rows as half messages. `label` is the same for all attempts of all tasks of a write."""

    def __init__(self, options: WriteOptions, outlet: ClusterOutlet, label: str, start: int = 0) -> None:
        self._options = options
        self._marks = _marks(options.producer_group, label)
        self._outlet = outlet
        self._chooser = QueueChooser(outlet.queues, start)
        self._pace = Pace(options.messages_per_second)
        self._queues: dict[Queue, int] = {}
        self._places, self._states, self._logs = array("H"), array("q"), array("q")

    @property
    def prepared(self) -> Prepared:
        """What was sent so far."""
        return Prepared(tuple(self._queues), self._places, self._states, self._logs)

    def deliver(self, messages: Iterable[Outgoing]) -> Prepared:
        """Send all; brokers have them, hidden, when this returns. Rolls back what was sent when it fails."""
        try:
            chunk: list[tuple[Queue, Outgoing]] = []
            size = 0
            for message in messages:
                chunk.append((self._chooser.choose(message), message))
                size += message.size
                if size >= self._options.batch_bytes or len(chunk) == _CHUNK:
                    self._send(chunk)
                    chunk, size = [], 0
            self._send(chunk)
        except BaseException:
            roll_back(self._options, [self.prepared])
            raise
        return self.prepared

    def _send(self, pairs: Sequence[tuple[Queue, Outgoing]]) -> None:
        self._pace.take(len(pairs))
        left = list(range(len(pairs)))
        found: dict[int, tuple[int, int]] = {}
        sender = self._outlet.sender
        for tries in range(self._options.retries + 1):
            for number in left:
                queue, message = pairs[number]
                request = request_of(sender, queue, [_half(message, self._marks)])
                request.header.sys_flag |= TRANSACTION_PREPARED
                sender.submit_request(queue, request, number)
            error: BrokerError | None = None
            for receipt in sender.finish():
                if receipt.error is None:
                    position = receipt.positions[0]
                    found[receipt.token] = (position.queue_offset, position.commit_log_offset)
                else:
                    # In doubt or not: a half message that nobody commits is never seen.
                    error = receipt.error
            left = [number for number in left if number not in found]
            if error is None or not (error.retriable or error.doubtful) or tries == self._options.retries:
                break
            sleep(min(_FIRST_PAUSE * 2**tries, _LONGEST_PAUSE))
        for number in sorted(found):
            self._places.append(self._queues.setdefault(pairs[number][0], len(self._queues)))
            self._states.append(found[number][0])
            self._logs.append(found[number][1])
        if error is not None:
            raise error


def _marks(group: str, label: str) -> bytes:
    """The properties of all half messages of a write, each with the separator behind it."""
    table = {names.TRAN_MSG: "true", names.PGROUP: group, TRANSACTION: label}
    return b"".join(
        f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}".encode() for name, value in table.items()
    )


def _half(message: Outgoing, marks: bytes) -> Outgoing:
    return Outgoing(
        message.topic, message.body, marks + message.properties, message.flag, message.sys_flag, single=True
    )


def commit(options: WriteOptions, prepared: Sequence[Prepared], wait: Callable[[float], None] = sleep) -> None:
    """Show all half messages, in the order of partitions and rows. Raises SinkError for those that cannot be shown."""
    outlet = ClusterOutlet(options)
    queues = {queue for one in prepared for queue in one.queues}
    before = {queue: outlet.end(queue) for queue in queues}
    count, done = sum(map(len, prepared)), 0
    for some in _some_at_once(options, prepared):
        left, tries = some, 0
        while left:
            left, error = _end(options, outlet, left, before)
            if not left:
                break
            tries += 1
            if error is not None and (not (error.retriable or error.doubtful) or tries > options.retries):
                done += len(some) - len(left)
                raise SinkError(
                    f"{done} of {count} messages are committed, and {count - done} are not: {error}; writing the batch "
                    "again writes the others twice"
                ) from error
            wait(min(_FIRST_PAUSE * 2**tries, _LONGEST_PAUSE))
        done += len(some)


def _some_at_once(options: WriteOptions, prepared: Iterable[Prepared]) -> Iterator[list[Half]]:
    """All half messages, in order, in lists of bounded length."""
    halves = chain.from_iterable(one.halves(options.producer_group) for one in prepared)
    while some := list(islice(halves, _ENDED_AT_ONCE)):
        yield some


def _end(
    options: WriteOptions, outlet: ClusterOutlet, halves: Sequence[Half], before: Mapping[Queue, int]
) -> tuple[list[Half], BrokerError | None]:
    """Commit these; returns those that are not shown, and an error of one of them."""
    ended = Transactions(outlet.sender.cluster, options.producer_group).end(halves, commit=True)
    failed = [(one.half, one.error) for one in ended if one.error is not None]
    left = [half for half, error in failed if not error.doubtful]
    doubtful: dict[Queue, list[Half]] = {}
    for half, error in failed:
        if error.doubtful:
            doubtful.setdefault(half.queue, []).append(half)
    for broker in {queue.broker for queue in doubtful}:
        outlet.settle(broker)
    for queue, some in doubtful.items():
        shown = _shown(outlet, queue, before[queue])
        left += [half for half in some if half.commit_log_offset not in shown]
    errors = sorted((error for _, error in failed), key=lambda error: error.retriable or error.doubtful)
    return left, errors[0] if errors else None


def _shown(outlet: ClusterOutlet, queue: Queue, start: int) -> set[int]:
    """Offsets in the commit log of the half messages that the queue shows from this offset on."""
    part = QueueRange(queue, start, outlet.end(queue))
    found: set[int] = set()
    for batch in read_range(outlet.cluster, part, ReadPlan(("prepared_transaction_offset",), decompress=False)):
        found.update(batch.column(0).to_pylist())
    return found


def roll_back(options: WriteOptions, prepared: Iterable[Prepared]) -> None:
    """Drop half messages, as far as brokers can be reached: those that are left stay hidden."""
    outlet = ClusterOutlet(options)
    for some in _some_at_once(options, prepared):
        Transactions(outlet.sender.cluster, options.producer_group).end(some, commit=False)


def roll_back_lost(options: WriteOptions, label: str, prepared: Sequence[Prepared]) -> int:
    """Drop what attempts of a write have left that were not told of, as far as it is found; returns how many.

    `prepared` are the half messages that were told of and have ended: it is looked behind the first of them.
    """
    ended: dict[str, set[int]] = {}
    first: dict[str, int] = {}
    for one in prepared:
        for place, state_offset, log_offset in zip(one.places, one.state_offsets, one.log_offsets, strict=True):
            broker = one.queues[place].broker
            ended.setdefault(broker, set()).add(log_offset)
            first[broker] = min(first.get(broker, state_offset), state_offset)
    outlet = ClusterOutlet(options)
    dropped = 0
    for broker, start in first.items():
        try:
            lost = list(_lost(options, outlet, broker, start, label, ended[broker]))
            if lost:
                dropped += len(lost)
                Transactions(outlet.sender.cluster, options.producer_group).end(lost, commit=False)
        except (BrokerError, DataLossError):
            continue  # the broker drops them itself, later
    return dropped


def _lost(
    options: WriteOptions, outlet: ClusterOutlet, broker: str, start: int, label: str, ended: Collection[int]
) -> Iterator[Half]:
    queue = Queue(TRANS_HALF_TOPIC, broker, 0)
    end = outlet.end(queue)
    if end - start <= len(ended):
        return  # nobody else's
    plan = ReadPlan(("queue_offset", "commit_log_offset", "properties_raw"), decompress=False)
    name, wanted = TRANSACTION.encode(), label.encode()
    for batch in read_range(outlet.cluster, QueueRange(queue, start, end), plan):
        for queue_offset, log_offset, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if find_property(text, name) == wanted and log_offset not in ended:
                yield _half_at(queue, options.producer_group, queue_offset, log_offset)
