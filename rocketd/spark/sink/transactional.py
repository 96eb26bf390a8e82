"""Delivery in transactions: tasks send hidden half messages, and the driver commits those of the winning attempts.

A second end of a half message shows it a second time, at Apache's brokers and at rocketd's. So after a missing answer
to an end, the message is searched in its queue, by the offset of its half message. The end is repeated only if the
message is not there.

No producer remains to answer checks of half messages, because the process of a task ends with the task. A failed
attempt rolls back its half messages itself. Those of a killed or slow attempt are rolled back at the end of the write,
as far as they are found. The rest stays hidden. Brokers drop it after transactionCheckMax checks without an answer, by
default after 15 minutes.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from time import sleep
from typing import Final

from rocketd.common import message_properties as props
from rocketd.common.message_properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, find_property
from rocketd.common.names import TRANS_HALF_TOPIC
from rocketd.common.sysflag import TRANSACTION_PREPARED
from rocketd.spark.errors import ClusterError, DataLossError
from rocketd.spark.ranges import Queue, QueueRange, ReadPlan
from rocketd.spark.sink.cluster_output import ClusterOutput, request_of
from rocketd.spark.sink.message import TRANSACTION, Outgoing
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.problems import SinkError
from rocketd.spark.sink.queue_choice import QueueChooser
from rocketd.spark.sink.rate_limit import RateLimit
from rocketd.spark.wire.read import read_range
from rocketd.spark.wire.transactions import Half, Transactions

_CHUNK: Final = 512
"""The most half messages sent between two looks at the results."""
_ENDED_AT_ONCE: Final = 16384
"""The most half messages in memory as single objects: a write may have many millions."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """The half messages of one attempt, as its commit message carries them: 18 bytes each, and their target queues."""

    queues: tuple[Queue, ...]
    places: "array[int]"
    state_offsets: "array[int]"
    log_offsets: "array[int]"

    def __len__(self) -> int:
        return len(self.places)

    def halves(self, group: str) -> Iterator[Half]:
        """Yield each half message, in the order of the rows."""
        for place, state_offset, log_offset in zip(self.places, self.state_offsets, self.log_offsets, strict=True):
            yield _half_at(self.queues[place], group, state_offset, log_offset)


def _half_at(queue: Queue, group: str, state_offset: int, log_offset: int) -> Half:
    """Return the fields that an end must name. Ids only serve the log of the broker."""
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

    def __init__(self, options: WriteOptions, output: ClusterOutput, label: str, start: int = 0) -> None:
        self._options = options
        self._marks = _marks(options.producer_group, label)
        self._output = output
        self._chooser = QueueChooser(output.queues, start)
        self._rate_limit = RateLimit(options.messages_per_second)
        self._queues: dict[Queue, int] = {}
        self._places, self._states, self._logs = array("H"), array("q"), array("q")

    @property
    def prepared(self) -> Prepared:
        """The half messages sent so far."""
        return Prepared(tuple(self._queues), self._places, self._states, self._logs)

    def deliver(self, messages: Iterable[Outgoing]) -> Prepared:
        """Send all messages; brokers have them, hidden, when this returns. On failure, roll back the ones already sent."""
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
        self._rate_limit.take(len(pairs))
        left = list(range(len(pairs)))
        found: dict[int, tuple[int, int]] = {}
        sender = self._output.sender
        for tries in range(self._options.retries + 1):
            for number in left:
                queue, message = pairs[number]
                request = request_of(sender, queue, [_half(message, self._marks)])
                request.header.sys_flag |= TRANSACTION_PREPARED
                sender.submit_request(queue, request, number)
            error: ClusterError | None = None
            for receipt in sender.finish():
                if receipt.error is None:
                    position = receipt.positions[0]
                    found[receipt.token] = (position.queue_offset, position.commit_log_offset)
                else:
                    # Doubtful or not: a half message without a commit is never seen.
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
    """Return the properties shared by all half messages of a write, each followed by the separator."""
    table = {props.TRAN_MSG: "true", props.PGROUP: group, TRANSACTION: label}
    return b"".join(
        f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}".encode() for name, value in table.items()
    )


def _half(message: Outgoing, marks: bytes) -> Outgoing:
    return Outgoing(
        message.topic, message.body, marks + message.properties, message.flag, message.sys_flag, single=True
    )


def commit(options: WriteOptions, prepared: Sequence[Prepared], wait: Callable[[float], None] = sleep) -> None:
    """Commit all half messages, in the order of partitions and rows. Raises SinkError if some cannot be committed."""
    output = ClusterOutput(options)
    queues = {queue for one in prepared for queue in one.queues}
    before = {queue: output.end(queue) for queue in queues}
    count, done = sum(map(len, prepared)), 0
    for some in _some_at_once(options, prepared):
        left, tries = some, 0
        while left:
            left, error = _end(options, output, left, before)
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
    """Yield all half messages, in order, in lists of bounded length."""
    halves = chain.from_iterable(one.halves(options.producer_group) for one in prepared)
    while some := list(islice(halves, _ENDED_AT_ONCE)):
        yield some


def _end(
    options: WriteOptions, output: ClusterOutput, halves: Sequence[Half], before: Mapping[Queue, int]
) -> tuple[list[Half], ClusterError | None]:
    """Commit these half messages. Return the ones that are not visible, and an error of one of them."""
    ended = Transactions(output.sender.cluster, options.producer_group).end(halves, commit=True)
    failed = [(one.half, one.error) for one in ended if one.error is not None]
    left = [half for half, error in failed if not error.doubtful]
    doubtful: dict[Queue, list[Half]] = {}
    for half, error in failed:
        if error.doubtful:
            doubtful.setdefault(half.queue, []).append(half)
    for broker in {queue.broker for queue in doubtful}:
        output.await_processed(broker)
    for queue, some in doubtful.items():
        shown = _shown(output, queue, before[queue])
        left += [half for half in some if half.commit_log_offset not in shown]
    errors = sorted((error for _, error in failed), key=lambda error: error.retriable or error.doubtful)
    return left, errors[0] if errors else None


def _shown(output: ClusterOutput, queue: Queue, start: int) -> set[int]:
    """Return the commit-log offsets of the half messages that became visible in the queue from this offset on."""
    part = QueueRange(queue, start, output.end(queue))
    found: set[int] = set()
    for batch in read_range(output.cluster, part, ReadPlan(("prepared_transaction_offset",), decompress=False)):
        found.update(batch.column(0).to_pylist())
    return found


def roll_back(options: WriteOptions, prepared: Iterable[Prepared]) -> None:
    """Roll back half messages, as far as brokers are reachable: the rest stays hidden."""
    output = ClusterOutput(options)
    for some in _some_at_once(options, prepared):
        Transactions(output.sender.cluster, options.producer_group).end(some, commit=False)


def roll_back_lost(options: WriteOptions, label: str, prepared: Sequence[Prepared]) -> int:
    """Roll back half messages of a write that no attempt reported, as far as they are found. Return their number.

    `prepared` are the reported half messages, which have ended. The search begins at the first of them on each broker.
    """
    ended: dict[str, set[int]] = {}
    first: dict[str, int] = {}
    for one in prepared:
        for place, state_offset, log_offset in zip(one.places, one.state_offsets, one.log_offsets, strict=True):
            broker = one.queues[place].broker
            ended.setdefault(broker, set()).add(log_offset)
            first[broker] = min(first.get(broker, state_offset), state_offset)
    output = ClusterOutput(options)
    dropped = 0
    for broker, start in first.items():
        try:
            lost = list(_lost(options, output, broker, start, label, ended[broker]))
            if lost:
                dropped += len(lost)
                Transactions(output.sender.cluster, options.producer_group).end(lost, commit=False)
        except (ClusterError, DataLossError):
            continue  # the broker drops them itself, later
    return dropped


def _lost(
    options: WriteOptions, output: ClusterOutput, broker: str, start: int, label: str, ended: Collection[int]
) -> Iterator[Half]:
    queue = Queue(TRANS_HALF_TOPIC, broker, 0)
    end = output.end(queue)
    if end - start <= len(ended):
        return  # there are no other half messages
    plan = ReadPlan(("queue_offset", "commit_log_offset", "properties_raw"), decompress=False)
    name, wanted = TRANSACTION.encode(), label.encode()
    for batch in read_range(output.cluster, QueueRange(queue, start, end), plan):
        for queue_offset, log_offset, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if find_property(text, name) == wanted and log_offset not in ended:
                yield _half_at(queue, options.producer_group, queue_offset, log_offset)
