"""Sends messages.

Answers to DefaultMQProducer.
"""

from random import randrange

from twisted.internet.defer import Deferred

from rocketd.client.errors import BrokerError, ClientError, NoRouteError, check_group
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.instance.routes import DEFAULT_TOPIC_QUEUES
from rocketd.client.message import Message, SendResult
from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.common.properties import encode_properties
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RemotingError, RemotingTimeoutError
from rocketd.remoting.headers import (
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    read_header,
    write_header,
)

RETRIES = 2
TIMEOUT_MS = 3000

_STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
_RETRIED = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
)
"""Refusals after which another broker is tried."""


class Producer:
    """A producer of one group. All methods belong to the reactor thread; ``start`` comes first, ``stop`` last.

    Making it raises IllegalGroupError for a name that no group may have.
    """

    def __init__(self, client: ClientInstance, group: str) -> None:
        check_group(group)
        self.group = group
        self._client = client
        self._turn = randrange(1 << 16)

    def start(self) -> None:
        """Name the group in heartbeats from now on."""
        self._client.producer_groups.add(self.group)

    def stop(self) -> Deferred[None]:
        """Tell the brokers that the group has gone."""
        self._client.producer_groups.discard(self.group)
        return Deferred.fromCoroutine(self._client.unregister(producer_group=self.group))

    def send(
        self, message: Message, timeout_ms: float = TIMEOUT_MS, queue: MessageQueue | None = None
    ) -> Deferred[SendResult]:
        """Send a message, to ``queue`` or to the queues in turn.

        When a broker cannot be reached or refuses, another is tried, up to two more times within the timeout; not when
        the queue is given. Fails with IllegalMessageError, NoRouteError, BrokerError or RemotingError.
        """
        return Deferred.fromCoroutine(self._send(message, timeout_ms, queue))

    async def _send(self, message: Message, timeout_ms: float, wanted: MessageQueue | None) -> SendResult:
        message.check()
        began = self._client.now_ms()
        queues = [wanted] if wanted is not None else await self._client.routes.publish_queues(message.topic)
        unique_key = self._client.unique_keys.next_key()
        last: MessageQueue | None = None
        error: RemotingError | ClientError | None = None
        for _ in range(1 + (RETRIES if wanted is None else 0)):
            left = timeout_ms - (self._client.now_ms() - began)
            if left <= 0:
                break
            last = self._choose(queues, None if last is None else last.broker_name)
            try:
                return await self._send_to(last, message, unique_key, left)
            except RemotingError as failure:
                error = failure
            except BrokerError as refusal:
                if refusal.code not in _RETRIED:
                    raise
                error = refusal
        self._client.routes.forget(message.topic)
        raise error or RemotingTimeoutError(f"finding a queue of topic {message.topic} took all of {timeout_ms:g} ms")

    def _choose(self, queues: list[MessageQueue], last_broker: str | None) -> MessageQueue:
        """Take the queues in turn, but not of the broker that just failed if there is another."""
        for _ in queues:
            self._turn += 1
            queue = queues[self._turn % len(queues)]
            if queue.broker_name != last_broker:
                return queue
        self._turn += 1
        return queues[self._turn % len(queues)]

    async def _send_to(self, queue: MessageQueue, message: Message, unique_key: str, timeout_ms: float) -> SendResult:
        address = self._client.routes.address_of(queue.broker_name)
        if address is None:
            raise NoRouteError(f"no address of broker {queue.broker_name} is known")
        body, sys_flag = message.wire_body()
        header = SendMessageRequestHeaderV2(
            producer_group=self.group,
            topic=message.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=int(self._client.now_ms()),
            flag=message.flag,
            properties=encode_properties(message.wire_properties(unique_key)),
            reconsume_times=0,
            bname=queue.broker_name,
        )
        request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, write_header(header), body)
        response = await self._client.remoting.invoke_sync(address, request, timeout_ms)
        if response.code not in _STORED:
            raise BrokerError(address, response)
        where = read_header(SendMessageResponseHeader, response)
        return SendResult(
            response.code,
            unique_key,
            where.msg_id,
            MessageQueue(message.topic, queue.broker_name, where.queue_id),
            where.queue_offset,
        )
