"""Sends messages refused by their broker to the group's retry topic, at any broker.

Counterpart: the second half of `sendMessageBack` of `DefaultMQPushConsumerImpl` (Apache). Unlike Apache, the handler's
choice of a delay or a dead letter applies here, too. The limit of retries is also the same as at the message's broker.
Reactor thread.
"""

from collections.abc import Mapping
from random import Random

from rocketd.client.consumer.retries.handler_results import BROKER_CHOOSES, DEAD_LETTER
from rocketd.client.errors import NoRouteError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import OutgoingMessage
from rocketd.client.producer.sender import ProducerSender
from rocketd.common import message_properties as props
from rocketd.common.message_properties import encode_properties
from rocketd.common.names import CLIENT_INNER_PRODUCER_GROUP, retry_topic
from rocketd.common.sysflag import COMPRESSED, COMPRESSION_MASK
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.wire.codes import RequestCode
from rocketd.store.format.record import MessageExt

FIRST_LEVEL = 3
"""Delay level of the first retry if the broker may choose. It rises by one each time."""

_NOT_SENT_AGAIN = (props.TRAN_MSG, props.DELAY, props.INNER_MULTI_DISPATCH, props.INNER_MULTI_QUEUE_OFFSET)
"""Properties of the message not copied to its retry, which is in no transaction and in no further queues."""


class _Retry(OutgoingMessage, kw_only=True):
    """A message for the retry topic. A broker makes it a dead letter if ``tries`` reaches ``limit``."""

    born_timestamp: int
    tries: int
    limit: int


class RetrySender(ProducerSender):
    """Sends for consumer group ``group``, given with its namespace. ``limit`` is the limit of retries."""

    def __init__(self, instance: ClientInstance, group: str, limit: int, random: Random) -> None:
        super().__init__(instance, CLIENT_INNER_PRODUCER_GROUP, ProducerOptions(), random)
        self._topic = retry_topic(group)
        self._limit = limit

    async def send_again(
        self,
        record: MessageExt,
        more: Mapping[str, str],
        reconsume_times: int,
        delay_level: int,
        broker_name: str | None = None,
    ) -> None:
        """Send a record again, with ``more`` properties, to any broker or to the named one.

        It came again ``reconsume_times`` times. Raises the errors of ``send``, and NoRouteError if the named broker does
        not have the retry topic.
        """
        table = {
            name: value
            for name, value in record.properties_map().items()
            if name not in _NOT_SENT_AGAIN and not name.startswith(props.TIMER_PREFIX)
        }
        table.update(more)
        tries = reconsume_times + 1
        dead = delay_level == DEAD_LETTER or reconsume_times >= self._limit
        if not dead:
            level = FIRST_LEVEL + reconsume_times if delay_level == BROKER_CHOOSES else delay_level
            table[props.DELAY] = str(level)
        outgoing = _Retry(
            RequestCode.SEND_MESSAGE_V2,
            self._topic,
            record.body,
            record.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            record.flag,
            encode_properties(table),
            [table.get(props.UNIQ_KEY, "")],
            (),
            len(record.body),
            born_timestamp=record.born_timestamp,
            tries=tries,
            limit=tries if dead else self._limit + 1,
        )
        if broker_name is None:
            await self.send(outgoing, self.send_timeout_ms)
            return
        queues = await self._instance.routes.subscribe_queues(self._topic)
        queue = next((queue for queue in queues if queue.broker_name == broker_name), None)
        if queue is None:
            raise NoRouteError(f"broker {broker_name} does not have topic {self._topic}", broker=broker_name)
        await self.send(outgoing, self.send_timeout_ms, queue=queue)

    def fields(self, outgoing: OutgoingMessage, queue: MessageQueue) -> dict[str, str]:
        """Return the fields of the request, with those of a retry."""
        assert isinstance(outgoing, _Retry)
        fields = super().fields(outgoing, queue)
        fields["g"] = str(outgoing.born_timestamp)
        fields["j"] = str(outgoing.tries)
        last = {name: fields.pop(name) for name in "mn"}
        return {**fields, "l": str(outgoing.limit), **last}
