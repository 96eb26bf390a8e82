"""Delivery at least once: a task sends its rows as they come; what is in doubt is sent again."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import sleep
from typing import Final

from rocketd.spark.errors import BrokerError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.outlet import Outlet, Parcel, Receipt, send_all
from rocketd.spark.sink.pace import Pace
from rocketd.spark.sink.queue_choice import QueueChooser

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


class AtLeastOnce:
    """Sends one task's messages. Rows that may go to any queue leave out a broker that fails, while there is another.

    `start` is the turn that the queues begin with: partitions begin with different ones.
    """

    def __init__(
        self, options: WriteOptions, outlet: Outlet, start: int = 0, wait: Callable[[float], None] = sleep
    ) -> None:
        self._options = options
        self._outlet = outlet
        self._chooser = QueueChooser(outlet.queues, start)
        self._pace = Pace(options.messages_per_second)
        self._wait = wait
        self._away: set[str] = set()
        self._stray: list[Outgoing] = []
        self.sent = 0
        """How many messages brokers have."""

    def deliver(self, messages: Iterable[Outgoing]) -> None:
        """Send all; brokers have them when this returns. Raises BrokerError where one cannot be sent."""
        self._send(messages)
        while self._stray:
            again, self._stray = self._stray, []
            self._send(again)

    def _send(self, messages: Iterable[Outgoing]) -> None:
        pairs = self._with_queues(messages)
        send_all(self._outlet, pairs, self._options.batch_bytes, self._on_sent, self._on_failure, self._pace.take)

    def _with_queues(self, messages: Iterable[Outgoing]) -> Iterator[tuple[Queue, Outgoing]]:
        for message in messages:
            yield self._chooser.choose(message, self._away), message

    def _on_sent(self, sent: Mapping[Queue, tuple[Parcel, Receipt]]) -> None:
        self.sent += sum(len(parcel) for parcel, _ in sent.values())

    def _on_failure(self, queue: Queue, parcel: Parcel, error: BrokerError, times: int) -> Parcel:
        if not (error.retriable or error.doubtful) or times > self._options.retries:
            raise error
        if parcel[0].key is None and parcel[0].queue_id is None and self._has_other(queue):
            self._away.add(queue.broker)
            self._stray += parcel
            return ()
        self._wait(min(_FIRST_PAUSE * 2 ** min(times - 1, 10), _LONGEST_PAUSE))
        return parcel

    def _has_other(self, queue: Queue) -> bool:
        """Whether another broker can take what this one did not."""
        return bool(self._chooser.brokers(queue.topic) - self._away - {queue.broker})
