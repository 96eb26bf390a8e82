"""The subscriber: consumes topics and calls handlers.

Counterpart: `DefaultMQPushConsumer` and its listeners (Apache), as FastStream's subscribers.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.subscriber import SubscriberUsecase
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SetupError, StopConsume
from faststream.middlewares import AckPolicy

from rocketd.client.consumer.retries.handler_results import Reject, Retry
from rocketd.faststream.base.config import RocketBrokerConfig, RocketSubscriberConfig
from rocketd.faststream.base.groups import ConsumerSettings
from rocketd.faststream.base.message import Raw, RocketBatchMessage, RocketMessage, is_request
from rocketd.faststream.base.options import ConsumeOptions
from rocketd.faststream.base.parser import RocketParser
from rocketd.faststream.base.settlement import Answer, Settlement, settling
from rocketd.faststream.pending_messages import PendingMessages
from rocketd.faststream.publisher import AnswerPublisher

if TYPE_CHECKING:
    from faststream._internal.endpoint.publisher import PublisherProto
    from faststream._internal.endpoint.subscriber import SubscriberSpecification
    from faststream._internal.endpoint.subscriber.call_item import CallsCollection
    from faststream.message import StreamMessage


class RocketSubscriber(SubscriberUsecase[Any]):
    """Consumes topics for one or more handlers, or for iteration. Loop thread."""

    _outer_config: RocketBrokerConfig

    def __init__(
        self,
        config: RocketSubscriberConfig,
        specification: "SubscriberSpecification[Any, Any]",
        calls: "CallsCollection[Any]",
    ) -> None:
        parser = RocketParser()
        config.parser = parser.parse_batch if config.batch > 1 else parser.parse_message
        config.decoder = parser.decode_batch if config.batch > 1 else parser.decode_message
        super().__init__(config, specification, calls)
        self._topics = config.topics
        self._group = config.group
        self.wanted = config.wanted
        self.batch = config.batch
        self.options: ConsumeOptions = config.options
        self._pending: PendingMessages | None = None
        self.joined = False
        """Whether messages are delivered to it."""
        self.unacknowledged: dict[Settlement, Any] = {}
        """Deliveries whose handlers acknowledge by hand and have ended without an acknowledgement."""
        self._stops: set[asyncio.Task[None]] = set()

    @property
    def topics(self) -> list[str]:
        """The topics, including the prefixes of the routers."""
        return [f"{self._outer_config.prefix}{topic}" for topic in self._topics]

    @property
    def group(self) -> str:
        """The consumer group. Raises SetupError if neither the subscriber nor its broker has one."""
        group = self._group or self._outer_config.group
        if not group:
            raise SetupError(
                f"the subscriber of {', '.join(self.topics)} has no consumer group: give it group=..., or give one to the "
                "broker for all of its subscribers"
            )
        return group

    # ------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Start to consume. Raises SetupError, and the errors of the client's ``Consumer.open``."""
        await super().start()
        config = self._outer_config
        self._pending = None if self.calls else PendingMessages()
        settings = ConsumerSettings(
            client_options=config.client_options,
            grace=config.graceful_timeout or 0.0,
            consume_hooks=config.consume_hooks,
            admin=config.admin if config.create_topics else None,
        )
        await config.groups.join(self, settings)
        self.joined = True
        self._post_start()

    async def stop(self) -> None:
        """Stop pulling, wait up to the broker's ``graceful_timeout`` for handlers, and store the offsets."""
        if self._pending is not None:
            self._pending.close()
        joined, self.joined = self.joined, False
        if joined and await self._outer_config.groups.leave(self):
            self.lock = nullcontext()  # the consumer has already waited for the handlers
        await super().stop()

    # ------------------------------------------------------------ what comes

    async def deliver(self, raw: Any) -> Answer:
        """Handle a message, or a list of messages, and return the outcome."""
        settlement = Settlement()
        with settling(settlement):
            if self._pending is not None:
                self._pending.offer(raw, settlement)
                return await settlement.answer()
            try:
                await self.process_message(raw)
            except (Retry, Reject) as answer:
                return answer
            except AckMessage:  # reaches this only with AckPolicy.MANUAL, as the next two
                settlement.decide(None)
            except NackMessage as error:
                settlement.decide(Retry(**error.extra_options))
            except RejectMessage:
                settlement.decide(Reject())
            except (StopConsume, SystemExit) as error:
                settlement.decide(Retry())
                self._stop_soon(leave_application=isinstance(error, SystemExit))
            except Exception as error:  # already logged
                self._fail(settlement, error)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise  # the consumer has given up waiting
                self._fail(settlement, error)  # a task awaited by the handler was cancelled
            if self.ack_policy is not AckPolicy.MANUAL:
                settlement.decide(None)
            if not settlement.decided:
                self.unacknowledged[settlement] = raw
            try:
                return await settlement.answer()
            finally:
                self.unacknowledged.pop(settlement, None)

    def _fail(self, settlement: Settlement, error: BaseException) -> None:
        settlement.fail(error)
        if self._outer_config.on_failure is not None:
            self._outer_config.on_failure(error)

    def _stop_soon(self, *, leave_application: bool) -> None:
        """Stop once the calling handler has ended: ``stop`` waits for handlers."""
        task = asyncio.create_task(self.stop())
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)
        app = self._outer_config.context.get("app")
        if leave_application and app:
            app.exit()

    # ------------------------------------------------------------ without handlers

    async def get_one(self, *, timeout: float | None = 5.0) -> "RocketMessage | RocketBatchMessage | None":
        """Return the next message; None after ``timeout`` seconds without one.

        It counts as consumed when the next one is taken or the subscriber stops, unless it was settled before.
        """
        pending = self._pending
        if pending is None:
            raise SetupError("messages can be asked for from a subscriber that is started and has no handlers")
        item = await pending.next(timeout)
        if item is None:
            return None
        raw, settlement = item
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        with settling(settlement):
            message: Any = await process_msg(
                msg=raw,
                middlewares=(middleware(raw, context=context) for middleware in self._broker_middlewares),
                parser=parser,
                decoder=decoder,
            )
        return message  # type: ignore[no-any-return]

    async def __aiter__(self) -> AsyncIterator["RocketMessage | RocketBatchMessage"]:
        while (message := await self.get_one(timeout=None)) is not None:
            yield message

    # ------------------------------------------------------------ for FastStream

    def _make_response_publisher(self, message: "StreamMessage[Any]") -> Iterable["PublisherProto"]:
        raw = message.raw_message
        request: Raw | None = None if isinstance(raw, Sequence) or not is_request(raw) else raw
        return (AnswerPublisher(self._outer_config.producer, message.reply_to, request),)

    def get_log_context(self, message: "StreamMessage[Any] | None") -> dict[str, str]:
        """Return the columns of the access log."""
        raw = None if message is None else message.raw_message
        first = raw[0] if isinstance(raw, Sequence) else raw
        return {
            "topic": ",".join(self.topics) if first is None else first.topic,
            "group": self._group or self._outer_config.group or "",
            "message_id": "" if message is None else message.message_id,
            "keys": "" if first is None else " ".join(first.keys),
            "attempt": "" if first is None else str(first.reconsume_times + 1),
        }
