"""What consumes topics and calls handlers.

Answers to DefaultMQPushConsumer and its listeners, as FastStream's subscribers.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.subscriber import SubscriberUsecase
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SetupError, StopConsume
from faststream.middlewares import AckPolicy

from rocketd.client.consumer.outcome import Reject, Retry
from rocketd.faststream.config import RocketBrokerConfig, RocketSubscriberConfig
from rocketd.faststream.groups import ConsumerSettings
from rocketd.faststream.inbox import Inbox
from rocketd.faststream.message import Raw, RocketBatchMessage, RocketMessage, is_request
from rocketd.faststream.options import ConsumeOptions
from rocketd.faststream.parser import RocketParser
from rocketd.faststream.publisher import AnswerPublisher
from rocketd.faststream.settlement import Answer, Settlement, settling

if TYPE_CHECKING:
    from faststream._internal.endpoint.publisher import PublisherProto
    from faststream._internal.endpoint.subscriber import SubscriberSpecification
    from faststream._internal.endpoint.subscriber.call_item import CallsCollection
    from faststream.message import StreamMessage


class RocketSubscriber(SubscriberUsecase[Any]):
    """Consumes topics for one or several handlers, or to iterate over. Loop thread."""

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
        self._inbox: Inbox | None = None
        self.joined = False
        """Whether it is given messages."""
        self.unacknowledged: dict[Settlement, Any] = {}
        """What handlers have ended with that acknowledge themselves, and have not."""
        self._stops: set[asyncio.Task[None]] = set()

    @property
    def topics(self) -> list[str]:
        """What it consumes, the routers' prefixes included."""
        return [f"{self._outer_config.prefix}{topic}" for topic in self._topics]

    @property
    def group(self) -> str:
        """Its consumer group. Raises SetupError when neither it nor its broker was given one."""
        group = self._group or self._outer_config.group
        if not group:
            raise SetupError(
                f"the subscriber of {', '.join(self.topics)} has no consumer group: give it group=..., or give one to the "
                "broker for all of its subscribers"
            )
        return group

    # ------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Begin to consume. Raises SetupError, and what the client's consumer does when it is opened."""
        await super().start()
        config = self._outer_config
        self._inbox = None if self.calls else Inbox()
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
        """Pull no more, wait for handlers as long as the broker's graceful_timeout says, and store the offsets."""
        if self._inbox is not None:
            self._inbox.close()
        joined, self.joined = self.joined, False
        if joined and await self._outer_config.groups.leave(self):
            self.lock = nullcontext()  # the consumer has waited as long as it may
        await super().stop()

    # ------------------------------------------------------------ what comes

    async def deliver(self, raw: Any) -> Answer:
        """Handle a message, or a list of them, and return what becomes of it."""
        settlement = Settlement()
        with settling(settlement):
            if self._inbox is not None:
                self._inbox.offer(raw, settlement)
                return await settlement.answer()
            try:
                await self.process_message(raw)
            except (Retry, Reject) as answer:
                return answer
            except AckMessage:  # comes this far where handlers acknowledge themselves, as the two below do
                settlement.decide(None)
            except NackMessage as error:
                settlement.decide(Retry(**error.extra_options))
            except RejectMessage:
                settlement.decide(Reject())
            except (StopConsume, SystemExit) as error:
                settlement.decide(Retry())
                self._stop_soon(leave_application=isinstance(error, SystemExit))
            except Exception as error:  # it is in the log
                self._fail(settlement, error)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise  # the consumer waits no longer
                self._fail(settlement, error)  # something was cancelled that the handler waited for
            if self.ack_policy is not AckPolicy.MANUAL:
                settlement.decide(None)
            if not settlement.decided:
                self.unacknowledged[settlement] = raw
            try:
                return await settlement.answer()
            finally:
                self.unacknowledged.pop(settlement, None)

    def _fail(self, settlement: Settlement, error: BaseException) -> None:
        settlement.decide(Retry())
        if self._outer_config.on_failure is not None:
            self._outer_config.on_failure(error)

    def _stop_soon(self, *, leave_application: bool) -> None:
        """Stop when the handler that asks for it has ended: stopping waits for handlers."""
        task = asyncio.create_task(self.stop())
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)
        app = self._outer_config.context.get("app")
        if leave_application and app:
            app.exit()

    # ------------------------------------------------------------ without handlers

    async def get_one(self, *, timeout: float | None = 5.0) -> "RocketMessage | RocketBatchMessage | None":
        """Return the next message; None when there is none within ``timeout`` seconds.

        It is consumed when the next is asked for, or the subscriber stops, unless it is settled otherwise before.
        """
        inbox = self._inbox
        if inbox is None:
            raise SetupError("messages can be asked for from a subscriber that is started and has no handlers")
        item = await inbox.next(timeout)
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
        }
