"""Delivery effectively once: one process sends the staged rows of a batch, and records what the brokers have stored.

The messages of a queue are sent in order, one request at a time. So after a crash or a missing answer, the doubtful
messages lie after the last offset recorded for the queue. The queue is read from there to its end. Messages not found
there, by the property SPARK_SEQ, were not stored. If this check fails, nothing is sent: the batch stays open, and the
next start resumes it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from time import monotonic, sleep, time
from typing import Final

from rocketd.spark.errors import ClusterError, DataLossError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.effectively_once.ledger import BatchProgress, Begun, Ledger, LedgerOwner
from rocketd.spark.sink.effectively_once.lock import SinkLock
from rocketd.spark.sink.effectively_once.staging import StagedFile, Staging
from rocketd.spark.sink.message import Outgoing, number_in, numbered
from rocketd.spark.sink.message_output import MessageOutput, Parcel, Receipt, send_all
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.problems import SinkError
from rocketd.spark.sink.queue_choice import QueueChooser
from rocketd.spark.sink.rate_limit import RateLimit

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_SYNC_AFTER: Final = 0.5
"""Seconds of recorded progress that may be lost in a system crash. In that case the brokers are searched instead."""


class EffectivelyOnce:
    """Writes the batches of one sink. `open_outlet` connects to the cluster once there is something to send."""

    def __init__(
        self,
        options: WriteOptions,
        sink: str,
        query: str,
        open_output: Callable[[], MessageOutput],
        clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
    ) -> None:
        self._options = options
        self._identity = LedgerOwner(sink, options.namesrv, options.topic, query)
        self._staging = Staging(sink_folder(options, sink))
        self._open_output = open_output
        self._clock = clock
        self._wait = wait

    def commit(self, batch: str, staged: Sequence[StagedFile]) -> None:
        """Send a batch, unless it is done. An open batch resumes with the files it was begun with.

        Raises SinkError, ClusterError.
        """
        folder = self._staging.folder
        with (
            SinkLock(folder, self._options.lock_timeout, self._clock, self._wait),
            closing(Ledger(os.path.join(folder, "ledger"), self._identity)) as ledger,
        ):
            if not ledger.is_done(batch):
                self._send(ledger, batch, staged)
            # Only now: a crash before this leaves files behind, and the next batch sweeps them.
            self._staging.sweep(ledger.is_done, lambda one: _is_open(ledger, one), time())

    def abort(self, batch: str, staged: Iterable[StagedFile]) -> None:
        """Remove the staged files of a batch, unless the batch is open: then the next start resumes it."""
        folder = self._staging.folder
        if not os.path.isdir(folder):
            return
        with (
            SinkLock(folder, self._options.lock_timeout, self._clock, self._wait),
            closing(Ledger(os.path.join(folder, "ledger"), self._identity)) as ledger,
        ):
            if not _is_open(ledger, batch):
                self._staging.remove(one.name for one in staged)

    def _send(self, ledger: Ledger, batch: str, staged: Sequence[StagedFile]) -> None:
        progress = ledger.open_batch
        if progress is not None and progress.begun.batch != batch:
            raise SinkError(_unfinished(self._identity, progress.begun, self._staging.folder))
        if progress is None and not any(one.rows for one in staged):
            ledger.begin(Begun(batch, (), ()))
            ledger.finish()
            return
        output = self._open_output()
        try:
            resumed = progress is not None
            if progress is None:
                progress = ledger.begin(self._plan(output, batch, staged))
            shipment = Shipment(
                output, self._staging, ledger, progress, self._identity.sink, self._options, self._clock, self._wait
            )
            if resumed:
                shipment.look_for_all()
            shipment.send()
        except (ClusterError, DataLossError) as error:
            if ledger.open_batch is None:
                raise
            again = "start the query again" if self._options.stream else f"write again with jobId={batch[len(JOB) :]}"
            raise SinkError(
                f"batch {batch} of sink {self._identity.sink} was begun and is not done: {error}; {again} to go on with it"
            ) from error
        ledger.finish()

    def _plan(self, output: MessageOutput, batch: str, staged: Sequence[StagedFile]) -> Begun:
        topics = sorted(frozenset().union(*(one.topics for one in staged)))
        queues = {topic: output.queues(topic) for topic in topics}
        chooser = QueueChooser(queues.__getitem__)
        files = tuple((one.name, one.rows) for one in staged if one.rows)
        for name, _ in files:
            for message in self._staging.read(name):
                if message.queue_id is None:
                    break
                # A row with an unknown queue would block the batch forever, if the batch were open.
                chooser.choose(message)
        return Begun(batch, files, tuple((queue, output.end(queue)) for topic in topics for queue in queues[topic]))


JOB: Final = "job-"
"""The prefix of batch ids of batch writes; batch ids of streams are numbers."""


def sink_folder(options: WriteOptions, sink: str) -> str:
    """Return the folder with the staged files and the ledger of a sink."""
    return os.path.join(options.staging, sink)


def _is_open(ledger: Ledger, batch: str) -> bool:
    return ledger.open_batch is not None and ledger.open_batch.begun.batch == batch


def _unfinished(identity: LedgerOwner, begun: Begun, folder: str) -> str:
    if begun.batch.startswith(JOB):
        return (
            f"sink {identity.sink} has a write that was cut short, of {begun.rows} rows: write once more with "
            f"jobId={begun.batch[len(JOB) :]} to finish it, or remove {folder} to give up its unsent rows"
        )
    return (
        f"sink {identity.sink} has sent batch {begun.batch} in part, and the query does not begin with that: go on from "
        f"the checkpoint that the query had, or remove {folder} to give up the batch's unsent rows"
    )


class Shipment:
    """The sending of one open batch."""

    def __init__(
        self,
        output: MessageOutput,
        staging: Staging,
        ledger: Ledger,
        progress: BatchProgress,
        sink: str,
        options: WriteOptions,
        clock: Callable[[], float],
        wait: Callable[[float], None],
    ) -> None:
        self._output = output
        self._staging = staging
        self._ledger = ledger
        self._progress = progress
        self._label = f"{sink}:{progress.begun.batch}:"
        self._batch_bytes = options.batch_bytes
        self._patience = options.retry_timeout
        self._rate_limit = RateLimit(options.messages_per_second, clock, wait)
        self._clock = clock
        self._wait = wait
        queues = progress.begun.queues
        self._places = {queue: place for place, (queue, _) in enumerate(queues)}
        # For each queue: the number up to which all messages are stored, and the offset from which doubtful ones may
        # lie.
        self._stored = {queue: progress.sent.get(place, (-1, end))[0] for queue, place, end in self._known()}
        self._ends = {queue: progress.sent.get(place, (-1, end))[1] for queue, place, end in self._known()}
        self._found: dict[Queue, frozenset[int]] = {}
        self._failing_since: dict[Queue, float] = {}
        self._synced_at = clock()

    def _known(self) -> Iterator[tuple[Queue, int, int]]:
        for place, (queue, end) in enumerate(self._progress.begun.queues):
            yield queue, place, end

    def look_for_all(self) -> None:
        """Find the messages of the batch stored beyond the recorded progress.

        Raises SinkError if the queue does not allow that.
        """
        for broker in sorted({queue.broker for queue in self._places}):
            self._output.await_processed(broker)
        for queue in self._places:
            self._found[queue] = self._look(queue)

    def send(self) -> None:
        """Send all messages that are not stored yet."""
        send_all(
            self._output, self._missing(), self._batch_bytes, self._on_sent, self._on_failure, self._rate_limit.take
        )

    def _missing(self) -> Iterator[tuple[Queue, Outgoing]]:
        by_topic: dict[str, list[Queue]] = {}
        for queue in self._places:
            by_topic.setdefault(queue.topic, []).append(queue)
        chooser = QueueChooser(by_topic.__getitem__)
        number = -1
        for name, rows in self._progress.begun.files:
            first = number + 1
            for message in self._staging.read(name):
                number += 1
                queue = chooser.choose(message)
                if number > self._stored[queue] and number not in self._found.get(queue, ()):
                    yield queue, numbered(message, self._label, number)
            if number - first + 1 != rows:
                raise SinkError(
                    f"the staged file {name} has {number - first + 1} rows, not {rows} as when it was written"
                )

    def _look(self, queue: Queue) -> frozenset[int]:
        """Return the numbers of this batch found in the queue after its last recorded offset.

        The broker must have processed all earlier requests.
        """
        start = self._ends[queue]
        end = self._output.end(queue)
        if end < start:
            raise SinkError(
                f"queue {queue} ends at {end}, and this sink has seen it reach {start}: its broker has lost messages, or "
                "the topic was made anew; how much of the batch is stored is unknown"
            )
        numbers = (number_in(text, self._label) for _, text in self._output.properties(queue, start, end))
        return frozenset(number for number in numbers if number is not None)

    def _on_sent(self, sent: Mapping[Queue, tuple[Parcel, Receipt]]) -> None:
        noted: dict[int, tuple[int, int]] = {}
        for queue, (parcel, receipt) in sent.items():
            self._stored[queue] = parcel[-1].number
            self._ends[queue] = receipt.queue_offset + len(parcel)
            self._failing_since.pop(queue, None)
            noted[self._places[queue]] = (self._stored[queue], self._ends[queue])
        self._ledger.note_sent(noted)
        if self._clock() - self._synced_at >= _SYNC_AFTER:
            self._ledger.sync()
            self._synced_at = self._clock()

    def _on_failure(self, queue: Queue, parcel: Parcel, error: ClusterError, times: int) -> Parcel:
        now = self._clock()
        since = self._failing_since.setdefault(queue, now)
        if not error.retriable and not error.doubtful:
            raise error
        if now - since > self._patience:
            raise error
        self._wait(min(_FIRST_PAUSE * 2 ** min(times - 1, 10), _LONGEST_PAUSE))
        if not error.doubtful:
            return parcel
        self._output.await_processed(queue.broker)
        found = self._look(queue)
        return [message for message in parcel if message.number not in found]
