"""The outlet to a live cluster, over the blocking client."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from struct import Struct
from time import monotonic, sleep
from typing import Final

from rocketd.common.properties import decode_properties
from rocketd.spark.errors import BrokerError
from rocketd.spark.ranges import Queue, QueueRange, ReadPlan
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.outlet import Parcel, Receipt
from rocketd.spark.source import cluster_options
from rocketd.spark.wire import admin, offsets
from rocketd.spark.wire.cluster import Cluster
from rocketd.spark.wire.faults import UnknownTopicError, patiently
from rocketd.spark.wire.message import Batch, Message
from rocketd.spark.wire.read import read_range
from rocketd.spark.wire.send import Request, Sender

_HEAD = Struct(">iiiii")
_PROPERTIES = Struct(">h")
_MOST_UNDER_WAY: Final = 256

_ROUTE_PATIENCE: Final = 60.0
"""Seconds that the route of a topic is waited for, at most: brokers register every 30 at a name server that starts."""

_PAUSE: Final = 0.1
_AT_WORK: Final = 0.5
"""Seconds that a broker may need for a request that it has taken up already."""
_BLIND: Final = 5.0
"""Seconds that are waited where a broker does not tell how far it is."""


class ClusterOutlet:
    """Sends to the cluster of the options. Belongs to one thread; made where it is used, never pickled."""

    def __init__(self, options: WriteOptions) -> None:
        asking = cluster_options(options)
        self.cluster = Cluster(asking)
        sending = Cluster(replace(asking, timeout=options.send_timeout))
        self.sender = Sender(sending, options.producer_group, window=_MOST_UNDER_WAY)

    def queues(self, topic: str) -> list[Queue]:
        """The queues that can be sent to, at least one, sorted. Raises BrokerError.

        A topic without any is waited for: brokers and name servers that start again know it later.
        """
        return patiently(lambda: self._queues(topic), min(_ROUTE_PATIENCE, self.cluster.options.patience))

    def _queues(self, topic: str) -> list[Queue]:
        try:
            found = self.cluster.write_queues(topic, fresh=True)
        except UnknownTopicError as error:
            raise UnknownTopicError(str(error), error.code, retriable=True) from error
        if not found:
            raise BrokerError(
                f"topic {topic!r} has no queue that can be written: wait for its brokers, or check its permission",
                retriable=True,
            )
        return found

    def end(self, queue: Queue) -> int:
        """The offset behind the last message that can be read."""
        return max(0, offsets.max_offset(self.cluster, queue))

    def send(self, parcels: Mapping[Queue, Parcel]) -> dict[Queue, Receipt | BrokerError]:
        """Send a parcel to each of these queues, all at once, and wait for the answers."""
        for queue, parcel in parcels.items():
            self.sender.submit_request(queue, request_of(self.sender, queue, parcel), queue)
        results: dict[Queue, Receipt | BrokerError] = {}
        for one in self.sender.finish():
            first = one.positions[0] if one.positions else None
            if first is not None:
                results[one.token] = Receipt(first.queue_offset, first.commit_log_offset)
            else:
                results[one.token] = one.error or BrokerError(f"{one.queue}: an answer without a place", doubtful=True)
        return results

    def properties(self, queue: Queue, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Offset and property string of every message there is; DataLossError when one is not there any more."""
        plan = ReadPlan(("queue_offset", "properties_raw"), decompress=False)
        for batch in read_range(self.cluster, QueueRange(queue, start, end), plan):
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)

    def settle(self, broker: str) -> None:
        """Wait until a broker has carried out all it got before, and all of it can be read."""
        try:
            wait_until_settled(lambda: admin.runtime_info(self.cluster, broker))
        except BrokerError as error:
            if error.retriable:
                raise
            sleep(_BLIND)  # an account that may not ask


def request_of(sender: Sender, queue: Queue, parcel: Parcel) -> Request:
    """The request of one message, or of several that share one."""
    if len(parcel) > 1:
        body = b"".join(map(_entry, parcel))
        return sender.request(queue, Batch(queue.topic, body, ("",) * len(parcel)))
    (message,) = parcel
    table = decode_properties(message.properties.decode())
    request = sender.request(queue, [Message(message.topic, message.body, properties=table, flag=message.flag)])
    request.header.sys_flag |= message.sys_flag
    return request


def _entry(message: Outgoing) -> bytes:
    """One message of a batch."""
    text = message.properties
    head = _HEAD.pack(
        _HEAD.size + _PROPERTIES.size + len(message.body) + len(text), 0, 0, message.flag, len(message.body)
    )
    return b"".join((head, message.body, _PROPERTIES.pack(len(text)), text))


def wait_until_settled(
    ask: Callable[[], Mapping[str, str]],
    clock: Callable[[], float] = monotonic,
    wait: Callable[[float], None] = sleep,
) -> None:
    """Wait until a broker, which `ask` asks how it is, has carried out what it got before and put it into its queues.

    Its sends wait in a pool: once the oldest came after the beginning here, and some time for those at work is over, all
    before are in its commit log; up to which place its queues are filled, it tells in bytes. One that does not tell is
    given some seconds.
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
            # A broker that was killed may come back with a shorter log.
            reach = min(reach, int(info["commitLogMaxOffset"]))
    except (KeyError, ValueError):
        wait(_BLIND)
