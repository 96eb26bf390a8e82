"""Sends messages that their own broker does not take back to the group's retry topic, at whichever broker takes them.

Answers to the second half of sendMessageBack of DefaultMQPushConsumerImpl. Unlike there, what the handler asked for holds
here, too, be it a delay or a dead letter, and a message comes again as often as when its own broker takes it. Reactor
thread.
"""

from collections.abc import Mapping
from random import Random

from rocketd.client.consumer.outcome import BROKER_CHOOSES, DEAD_LETTER
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import OutgoingMessage
from rocketd.client.producer.sender import Sender
from rocketd.common import properties as names
from rocketd.common.names import CLIENT_INNER_PRODUCER_GROUP, retry_topic
from rocketd.common.properties import encode_properties
from rocketd.common.sysflag import COMPRESSED, COMPRESSION_MASK
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.headers import SendMessageRequestHeader
from rocketd.store.record import MessageExt

FIRST_LEVEL = 3
"""Delay level of the first retry where the broker is to choose; it rises by one each time."""

_NOT_SENT_AGAIN = (names.TRAN_MSG, names.DELAY, names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET)
"""What the message was sent with, and its retry is not: that is in no transaction, and in no further queues."""


class _Retry(OutgoingMessage, kw_only=True):
    """A message for the retry topic; a broker makes it a dead letter when ``tries`` are as many as ``limit``."""

    born_timestamp: int
    tries: int
    limit: int


class RetrySender(Sender):
    """Sends for the consumer group ``group``, which has its namespace; ``most`` are the retries of a message."""

    def __init__(self, instance: ClientInstance, group: str, most: int, random: Random) -> None:
        super().__init__(instance, CLIENT_INNER_PRODUCER_GROUP, ProducerOptions(), random)
        self._topic = retry_topic(group)
        self._most = most

    async def send_again(
        self, record: MessageExt, more: Mapping[str, str], reconsume_times: int, delay_level: int
    ) -> None:
        """Send a record, with ``more`` properties, that came again so often already. Raises as ``send`` does."""
        table = {
            name: value
            for name, value in record.properties_map().items()
            if name not in _NOT_SENT_AGAIN and not name.startswith(names.TIMER_PREFIX)
        }
        table.update(more)
        tries = reconsume_times + 1
        dead = delay_level == DEAD_LETTER or reconsume_times >= self._most
        if not dead:
            level = FIRST_LEVEL + reconsume_times if delay_level == BROKER_CHOOSES else delay_level
            table[names.DELAY] = str(level)
        outgoing = _Retry(
            RequestCode.SEND_MESSAGE_V2,
            self._topic,
            record.body,
            record.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            record.flag,
            encode_properties(table),
            [table.get(names.UNIQ_KEY, "")],
            (),
            len(record.body),
            born_timestamp=record.born_timestamp,
            tries=tries,
            limit=tries if dead else self._most + 1,
        )
        await self.send(outgoing, self.send_timeout_ms)

    def _header(self, outgoing: OutgoingMessage, queue: MessageQueue) -> SendMessageRequestHeader:
        header = super()._header(outgoing, queue)
        assert isinstance(outgoing, _Retry)
        header.born_timestamp = outgoing.born_timestamp
        header.reconsume_times = outgoing.tries
        header.max_reconsume_times = outgoing.limit
        return header
