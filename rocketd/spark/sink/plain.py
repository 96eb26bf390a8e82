"""Delivery at least once: a task sends its rows as they come, and repeats doubtful sends."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import sleep
from typing import Final

from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.message_output import MessageOutput, Parcel, Receipt, send_all
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.queue_choice import QueueChooser
from rocketd.spark.sink.rate_limit import RateLimit

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


class AtLeastOnce:
    """Sends one task's messages. Rows without a fixed queue avoid a failing broker if there is another one.

    `start` is the first queue in the rotation; each partition begins with a different one.
    """

    def __init__(
        self, options: WriteOptions, output: MessageOutput, start: int = 0, wait: Callable[[float], None] = sleep
    ) -> None:
        self._options = options
        self._output = output
        self._chooser = QueueChooser(output.queues, start)
        self._rate_limit = RateLimit(options.messages_per_second)
        self._wait = wait
        self._away: set[str] = set()
        self._stray: list[Outgoing] = []
        self.sent = 0
        """The number of messages acknowledged by brokers."""

    def deliver(self, messages: Iterable[Outgoing]) -> None:
        """Send all messages; brokers have them when this returns. Raises ClusterError if one cannot be sent."""
        self._send(messages)
        while self._stray:
            again, self._stray = self._stray, []
            self._send(again)

    def _send(self, messages: Iterable[Outgoing]) -> None:
        pairs = self._with_queues(messages)
        send_all(self._output, pairs, self._options.batch_bytes, self._on_sent, self._on_failure, self._rate_limit.take)

    def _with_queues(self, messages: Iterable[Outgoing]) -> Iterator[tuple[Queue, Outgoing]]:
        for message in messages:
            yield self._chooser.choose(message, self._away), message

    def _on_sent(self, sent: Mapping[Queue, tuple[Parcel, Receipt]]) -> None:
        self.sent += sum(len(parcel) for parcel, _ in sent.values())

    def _on_failure(self, queue: Queue, parcel: Parcel, error: ClusterError, times: int) -> Parcel:
        if not (error.retriable or error.doubtful) or times > self._options.retries:
            raise error
        if parcel[0].key is None and parcel[0].queue_id is None and self._has_other(queue):
            self._away.add(queue.broker)
            self._stray += parcel
            return ()
        self._wait(min(_FIRST_PAUSE * 2 ** min(times - 1, 10), _LONGEST_PAUSE))
        return parcel

    def _has_other(self, queue: Queue) -> bool:
        """Tell whether another broker can take the messages that this one did not."""
        return bool(self._chooser.brokers(queue.topic) - self._away - {queue.broker})
