"""The first try of a blocking send in the calling thread.

A send through the engine costs four changes of threads. The first try needs none of the engine's work if the route is known:
the thread encodes the message, writes it to a connection of its own, and reads the answer. Everything else stays with the
engine: the first send to a topic, changed routes, further tries, and producers with options that this path does not serve.

The thread reads two things of the engine: the queues of a topic, which are never changed but replaced, and the addresses of
brokers. A failure is passed to the engine as the first of the tries, with the time left. If a send stayed without an answer,
the engine repeats it exactly when and as often as after a first try of its own.
"""

from threading import Lock, get_ident
from time import monotonic
from typing import Any, Generic

from rocketd.client.errors import BrokerError, ClientClosedError, RocketMQError, of_remoting
from rocketd.client.messages.codec import BYTES, TEXT, JsonCodec
from rocketd.client.messages.message import Message, SendResult, T
from rocketd.client.producer.direct_links import IDLE_SECONDS, MAX_LINKS, SUPPORTED, LinkPool
from rocketd.client.producer.outgoing import OutgoingMessage
from rocketd.client.producer.producer import BY_HASH, ProducerEngine
from rocketd.client.producer.sender import FirstTry
from rocketd.client.runtime.gevent_patches import is_patched
from rocketd.client.runtime.thread_host import ThreadHost
from rocketd.client.settings.config import Duration
from rocketd.common.event_loop import timers
from rocketd.protocol.send import STORED
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.socket_buffers import SocketBuffers
from rocketd.remoting.wire.command import RemotingCommand

MAX_DIRECT_BODY = 64 << 10
"""Longest body in bytes that a calling thread sends itself."""

IDLE_SCAN_SECONDS = 10.0


class DirectSender(Generic[T]):
    """Sends the messages of one open producer. ``send`` belongs to any thread, the rest to the reactor thread."""

    def __init__(self, engine: ProducerEngine[T], host: ThreadHost) -> None:
        self._engine = engine
        self._host = host
        instance = engine.instance
        remoting = instance.config.remoting
        idle = remoting.client_channel_max_idle_time_seconds
        self.pool = LinkPool(
            min(MAX_LINKS, remoting.client_async_semaphore_value),
            min(IDLE_SECONDS, idle or IDLE_SECONDS),
            SocketBuffers(remoting.client_socket_snd_buf_size, remoting.client_socket_rcv_buf_size),
        )
        engine.direct = self.pool.in_use
        engine.direct_sent = lambda: self._sent
        self._credentials = instance.config.credentials
        self._keys = instance.new_unique_keys()
        self._sent = 0
        self._lock = Lock()
        self._idle_scan = timers.ClockedLoop(instance.reactor, self.pool.close_idle)
        self._idle_scan.start(IDLE_SCAN_SECONDS, now=False)

    def close(self) -> None:
        """Close the connections. Sends under way on them fail."""
        if self._idle_scan.running:
            self._idle_scan.stop()
        self.pool.close()

    def send(
        self, message: Message[T], queue: MessageQueue | None, key: object, timeout: Duration | None
    ) -> SendResult:
        """Send a message. See ``Producer.send``."""
        engine = self._engine
        began = monotonic()
        with self._lock:
            unique_key = self._keys.next_key()
        outgoing = engine.outgoing(message, unique_key=unique_key)
        where = engine.where(message, queue, None, key)
        timeout_ms = engine.timeout_ms(timeout)
        deadline = began + timeout_ms / 1000
        first: FirstTry | None = None
        if not outgoing.sys_flag and len(outgoing.body) <= MAX_DIRECT_BODY and get_ident() != self._host.ident:
            place = self._place(outgoing, message, where.get("queue"), key, timeout_ms)
            if place is not None:
                result = self._try(outgoing, *place, deadline)
                if isinstance(result, SendResult):
                    with self._lock:
                        self._sent += 1
                    return result
                first = result
        left_ms = max(0.0, deadline - monotonic()) * 1000
        try:
            return self._host.call(lambda: engine.send_encoded(outgoing, left_ms, where, first))
        except ClientClosedError:
            if first is None:
                raise
            raise first.error from None

    def _place(
        self, outgoing: OutgoingMessage, message: Message[T], queue: MessageQueue | None, key: object, timeout_ms: float
    ) -> tuple[MessageQueue, str, float] | None:
        """Return queue, address and time in ms of the first try. None if the engine has to find them out."""
        instance = self._engine.instance
        if queue is None:
            queues = instance.routes.known_publish_queues(outgoing.topic)
            if queues is None:
                return None
            if key is not None:
                queue = BY_HASH(queues, message, key)
            else:
                info = self._engine.publish_info(outgoing.topic, queues)
                if info is None:
                    return None
                queue = info.select_one_message_queue()
                if info.several_brokers:
                    timeout_ms /= 1 + self._engine.options.retries
        try:
            return queue, instance.master(queue.broker_name), timeout_ms
        except RocketMQError:
            return None

    def _try(
        self, outgoing: OutgoingMessage, queue: MessageQueue, address: str, share_ms: float, deadline: float
    ) -> SendResult | FirstTry | None:
        """Return the result or the failure of a try. None if nothing was sent."""
        engine, pool = self._engine, self.pool
        began = monotonic()
        link = pool.take(address, deadline - began)
        if link is None:
            return None
        failure: RocketMQError
        try:
            fields = engine.send_fields(outgoing, queue)
            if self._credentials is not None:
                fields = self._credentials.sign(fields, outgoing.body)
            request = RemotingCommand(outgoing.code, fields, outgoing.body)
            response = link.ask(request.encode(), request.opaque, min(deadline, began + share_ms / 1000))
        except RemotingError as error:
            pool.drop(link)
            failure = of_remoting(error, address)
        except BaseException:
            pool.drop(link)
            raise
        else:
            pool.give_back(link)
            if response.code in STORED:
                return engine.send_result(outgoing, queue, response)
            failure = BrokerError(address, response)
        return FirstTry(queue.broker_name, (monotonic() - began) * 1000, failure)


def direct_sender(engine: ProducerEngine[T], host: ThreadHost) -> DirectSender[T] | None:
    """Return the direct sender of a started producer, None if its options need the engine for each try.

    Hooks, traces and codecs of the application expect to run in the reactor thread. TLS, and environments such as that of
    ``rocketd.testing``, have connections of their own kinds.
    """
    options, config = engine.options, engine.instance.config
    codec: Any = engine.codec
    suits = (
        options.direct
        and not options.linger
        and SUPPORTED
        and not is_patched()
        and config.environment is None
        and not config.tls
        and not config.hooks
        and not engine.hooks.sending
        and not options.latency_fault_tolerance
        and not options.retry_another_broker
        and (codec is BYTES or codec is TEXT or type(codec) is JsonCodec)
    )
    return DirectSender(engine, host) if suits else None
