"""A polling consumer that tells when an administrator resets its offsets, and commits no offset from before a reset."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from rocketd.client import MessageQueue
from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.namespace import queue_without_namespace
from rocketd.client.sync import LitePullConsumer

OnReset = Callable[[Mapping[MessageQueue, int]], None]
"""Gets queues with their new offsets, in the reactor thread. It must not wait."""


def ignore_reset(offsets: Mapping[MessageQueue, int]) -> None:
    """Do nothing."""


class ResetTellingEngine(LitePullConsumerEngine[bytes]):
    """The engine of ResetTellingConsumer."""

    on_reset: OnReset = staticmethod(ignore_reset)

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue from these offsets, after the application has heard of them."""
        namespace = self.instance.config.namespace
        self.on_reset({queue_without_namespace(namespace, queue): offset for queue, offset in offsets.items()})
        super().reset_offsets(topic, offsets)

    async def commit_if(self, wanted: Callable[[], bool], offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets, unless ``wanted`` returns False: no reset comes between the two."""
        if wanted():
            await self.commit(offsets)

    async def commit_beginnings(self, queues: Iterable[MessageQueue]) -> None:
        """Commit the positions of queues without an offset: a broker resets a group only if each queue has one."""
        for queue in queues:
            if not await self.committed(queue):  # brokers answer 0 as well if they have no offset of a new queue
                await self.commit({queue: self.position(queue)})


class ResetTellingConsumer(LitePullConsumer[bytes]):
    """A polling consumer with ``on_reset``, to be set before it is opened."""

    on_reset: OnReset = staticmethod(ignore_reset)

    def _make_engine(
        self, instance: ClientInstance, run_coroutine: Callable[[Any], Deferred[Any]]
    ) -> LitePullConsumerEngine[bytes]:
        engine = ResetTellingEngine(instance, self.group, options=self, codec=self.codec, run_coroutine=run_coroutine)
        engine.on_reset = self.on_reset
        self._telling = engine
        return self._subscribe_all(engine)

    def commit_if(self, wanted: Callable[[], bool], offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets, unless ``wanted`` returns False. Raises the errors of ``commit``."""
        self._call(self._telling.commit_if, wanted, offsets)

    def commit_beginnings(self, queues: Iterable[MessageQueue]) -> None:
        """Commit the positions of queues without an offset. Raises the errors of ``commit``."""
        self._call(self._telling.commit_beginnings, queues)
