"""The output to a live cluster, over the blocking client."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from time import monotonic, sleep
from typing import Final

from rocketd.common.message_properties import decode_properties
from rocketd.protocol.batch import batch_entry
from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue, QueueRange, ReadPlan
from rocketd.spark.sink.message_output import Parcel, Receipt
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.source import cluster_options
from rocketd.spark.wire import admin, offsets
from rocketd.spark.wire.cluster import ClusterClient
from rocketd.spark.wire.faults import UnknownTopicError, patiently
from rocketd.spark.wire.message import Batch, RawMessage
from rocketd.spark.wire.read import read_range
from rocketd.spark.wire.send import Sender, SendRequest

_MAX_UNDER_WAY: Final = 256

_ROUTE_PATIENCE: Final = 60.0
"""The longest wait for the route of a topic, in seconds: brokers register with a started name server every 30 seconds."""

_PAUSE: Final = 0.1
_AT_WORK: Final = 0.5
"""Seconds that a broker may need for a request it is already processing."""
_BLIND: Final = 5.0
"""Seconds to wait if a broker does not report its progress."""


class ClusterOutput:
    """Sends to the cluster of the options. For one thread; created at its first use, never pickled."""

    def __init__(self, options: WriteOptions) -> None:
        asking = cluster_options(options)
        self.cluster = ClusterClient(asking)
        sending = ClusterClient(replace(asking, timeout=options.send_timeout))
        self.sender = Sender(sending, options.producer_group, window=_MAX_UNDER_WAY)

    def queues(self, topic: str) -> list[Queue]:
        """Return the writable queues, at least one, sorted. Raises ClusterError.

        A topic without queues is waited for, because restarted brokers and name servers learn of it later.
        """
        return patiently(lambda: self._queues(topic), min(_ROUTE_PATIENCE, self.cluster.options.patience))

    def _queues(self, topic: str) -> list[Queue]:
        try:
            found = self.cluster.write_queues(topic, fresh=True)
        except UnknownTopicError as error:
            raise UnknownTopicError(str(error), error.code, retriable=True) from error
        if not found:
            raise ClusterError(
                f"topic {topic!r} has no queue that can be written: wait for its brokers, or check its permission",
                retriable=True,
            )
        return found

    def end(self, queue: Queue) -> int:
        """Return the offset after the last readable message."""
        return max(0, offsets.max_offset(self.cluster, queue))

    def send(self, parcels: Mapping[Queue, Parcel]) -> dict[Queue, Receipt | ClusterError]:
        """Send a parcel to each of these queues, all at once, and wait for the answers."""
        for queue, parcel in parcels.items():
            self.sender.submit_request(queue, request_of(self.sender, queue, parcel), queue)
        results: dict[Queue, Receipt | ClusterError] = {}
        for one in self.sender.finish():
            first = one.positions[0] if one.positions else None
            if first is not None:
                results[one.token] = Receipt(first.queue_offset, first.commit_log_offset)
            else:
                results[one.token] = one.error or ClusterError(f"{one.queue}: an answer without a place", doubtful=True)
        return results

    def properties(self, queue: Queue, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield offset and property string of every message of a range. Raises DataLossError if one is gone."""
        plan = ReadPlan(("queue_offset", "properties_raw"), decompress=False)
        for batch in read_range(self.cluster, QueueRange(queue, start, end), plan):
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)

    def await_processed(self, broker: str) -> None:
        """Wait until a broker has processed all earlier requests, and their messages are readable."""
        try:
            wait_until_processed(lambda: admin.runtime_info(self.cluster, broker))
        except ClusterError as error:
            if error.retriable:
                raise
            sleep(_BLIND)  # the account may not ask


def request_of(sender: Sender, queue: Queue, parcel: Parcel) -> SendRequest:
    """Return the request for one message, or for several that share a request."""
    if len(parcel) > 1:
        body = b"".join(batch_entry(one.body, one.properties, one.flag) for one in parcel)
        return sender.request(queue, Batch(queue.topic, body, ("",) * len(parcel)))
    (message,) = parcel
    table = decode_properties(message.properties.decode())
    request = sender.request(queue, [RawMessage(message.topic, message.body, properties=table, flag=message.flag)])
    request.header.sys_flag |= message.sys_flag
    return request


def wait_until_processed(
    ask: Callable[[], Mapping[str, str]],
    clock: Callable[[], float] = monotonic,
    wait: Callable[[float], None] = sleep,
) -> None:
    """Wait until a broker has processed all earlier requests and dispatched them to its queues.

    `ask` returns its statistics.

    Sends wait in a pool of the broker. The wait for the pool ends once its oldest request arrived after this call, and
    once the requests in process had time to finish. Then all earlier ones are in the commit log. The broker reports in
    bytes how far its queues are filled. A broker that does not report these values is given a few seconds.
    """
    began = clock()
    try:
        while True:
            info = ask()
            waited = clock() - began
            pooled = int(info["sendThreadPoolQueueSize"])
            if waited >= _AT_WORK and (not pooled or int(info["sendThreadPoolQueueHeadWaitTimeMills"]) < waited * 1000):
                break
            wait(_PAUSE)
        reach = int(info["commitLogMaxOffset"])
        while int(info["commitLogMaxOffset"]) - int(info["dispatchBehindBytes"]) < reach:
            wait(_PAUSE)
            info = ask()
            # A broker that was killed may return with a shorter log.
            reach = min(reach, int(info["commitLogMaxOffset"]))
    except (KeyError, ValueError):
        wait(_BLIND)
