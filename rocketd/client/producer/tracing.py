"""Traces a client's messages by hooks, and sends the traces by a separate, untraced producer.

Counterpart: the producer of `AsyncTraceDispatcher`, `SendMessageTraceHookImpl` and `EndTransactionTraceHookImpl`, as used by
`DefaultMQProducer` and `DefaultMQPushConsumer` (Apache). Reactor thread.

The producer shares the client's connections, but has no namespace, as in Apache's client: RMQ_SYS_TRACE_TOPIC, or the topic
in the option, is the same for all.
"""

from itertools import count
from random import Random

from twisted.logger import Logger

from rocketd.client.hooks import (
    EndTransactionContext,
    ProducerHook,
    SendMessageContext,
)
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES
from rocketd.client.messages.message import SEND_OK, Message
from rocketd.client.messages.namespace import without_namespace
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.outgoing import outgoing_message
from rocketd.client.producer.sender import ProducerSender
from rocketd.client.trace.dispatcher import SEND_TIMEOUT, AsyncTraceDispatcher, trace_producer_group
from rocketd.client.trace.hooks import (
    trace_of_end_transaction,
    trace_of_send,
)
from rocketd.client.trace.records import TraceContext
from rocketd.common.names import group_fault
from rocketd.remoting.headers.client import CheckTransactionStateRequestHeader
from rocketd.store.format.record import MessageExt

_numbers = count(1)
"""Numbers of the process's trace producers."""


class Tracing:
    """The traces of one producer or consumer of ``group``, from ``start`` to ``stop``.

    ``kind`` is PRODUCE or CONSUME. ``trace`` is the option: True, or a topic. Errors here never reach the traced
    client. If the group's name is too long to derive the trace group, this is logged, and nothing is traced.
    """

    _log = Logger()

    def __init__(self, instance: ClientInstance, group: str, kind: str, trace: bool | str, random: Random) -> None:
        bare = without_namespace(instance.config.namespace, group)
        self.group = trace_producer_group(bare, kind, next(_numbers))
        self.instance = instance
        self._fault = group_fault(self.group)
        self._options = ProducerOptions(send_timeout=SEND_TIMEOUT)
        self._sender = ProducerSender(instance, self.group, self._options, random)
        self._dispatcher = AsyncTraceDispatcher(
            self._send, instance.reactor, topic=trace if isinstance(trace, str) else None
        )

    def start(self) -> None:
        """Name the trace producer's group in heartbeats from now on."""
        if self._fault is None:
            self.instance.add_producer(self)
        else:
            self._log.warn(
                "no traces: {group} is not a valid name of a group: {fault}",
                group=self.group,
                fault=self._fault,
            )

    async def stop(self) -> None:
        """Send the waiting traces, for half a second at most."""
        if self._fault is None:
            await self._dispatcher.stop()
            await self.instance.remove_producer(self)

    def append(self, context: TraceContext | None) -> None:
        """Accept a trace to be sent soon. None is ignored."""
        if self._fault is None:
            self._dispatcher.append(context)

    async def _send(self, topic: str, body: bytes, keys: tuple[str, ...]) -> None:
        outgoing = outgoing_message(
            Message(topic, body, keys=keys),
            BYTES,
            self.instance.unique_keys.next_key(),
            limit=self._options.max_message_size,
            compress_over=self._options.compress_over,
        )
        await self._sender.send(outgoing, self._sender.send_timeout_ms)

    def check_transaction(self, address: str, header: CheckTransactionStateRequestHeader, record: MessageExt) -> None:
        """Do nothing, because this producer has no transactions."""


class ProducerTracing(ProducerHook):
    """Traces sends answered by a broker, and the ends of transactions."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._now_ms = tracing.instance.now_ms

    def send_before(self, context: SendMessageContext) -> None:
        """Note the time."""
        context.state[self] = int(self._now_ms())

    def send_after(self, context: SendMessageContext) -> None:
        """Trace the send if the broker answered."""
        result = context.result
        if result is None:
            return
        self._tracing.append(
            trace_of_send(
                group=context.group,
                topic=context.queue.topic,
                properties=context.properties,
                body_length=context.body_length,
                store_host=context.broker_address,
                msg_id=context.msg_id,
                offset_msg_id=result.offset_msg_id,
                success=result.status == SEND_OK,
                started_ms=context.state[self],
                finished_ms=int(self._now_ms()),
                region=result.region_id,
                trace_on=result.trace_on,
            )
        )

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Trace the end of the transaction."""
        self._tracing.append(
            trace_of_end_transaction(
                group=context.group,
                topic=context.message.topic,
                properties=context.properties,
                store_host=context.broker_address,
                msg_id=context.msg_id,
                transaction_id=context.transaction_id,
                commit_or_rollback=context.commit_or_rollback,
                from_check=context.from_check,
                now_ms=int(self._now_ms()),
            )
        )
