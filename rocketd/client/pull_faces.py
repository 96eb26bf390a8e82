"""What the three faces of the consumers have in common that are asked for messages: how they are made.

No counterpart in Apache.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike
from typing import Generic

from rocketd.client.codec import BYTES, Codec
from rocketd.client.config import ClientConfig, Duration
from rocketd.client.consumer.allocation import AllocateMessageQueueAveragely, AllocationStrategy
from rocketd.client.consumer.lite_pull_consumer import LitePullConsumer
from rocketd.client.consumer.member_options import MemberOptions
from rocketd.client.consumer.options import LitePullOptions
from rocketd.client.consumer.pull_consumer import PullConsumer
from rocketd.client.errors import check_group
from rocketd.client.face import Cluster
from rocketd.client.hooks import ConsumerHook
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.life import Face, RunCoroutine
from rocketd.client.message import T
from rocketd.client.option_types import check_types
from rocketd.client.subscribing import SubscribingFace, Topics, config_for
from rocketd.remoting.bodies import MessageQueue


@dataclass(eq=False, repr=False)
class LitePullFace(LitePullOptions, SubscribingFace[LitePullConsumer[T]], Generic[T]):
    """A consumer of one group that is polled. ``cluster`` are the name servers, or a ClientConfig.

    ``topics`` is what to consume a share of, more comes with ``subscribe``; without any, ``assign`` names queues once it is
    open. ``codec`` makes values of bodies. For hooks and traces, messages are handled from the poll that gave them to the
    next one, or to the end. All other options are those of LitePullOptions. Raises IllegalGroupError, IllegalTopicError
    and IllegalOptionError.
    """

    group: str
    cluster: Cluster = None
    _: KW_ONLY
    topics: Topics = ()
    codec: Codec[T] = BYTES  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_group(self.group)
        super().__post_init__()
        self._make_life(f"consumer of group {self.group}", self.cluster)
        self._want_all(self.topics)

    def make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> LitePullConsumer[T]:
        """Make the engine. Reactor thread."""
        return self._subscribe_all(
            LitePullConsumer(instance, self.group, options=self, codec=self.codec, run_coroutine=run_coroutine)
        )

    async def stop_engine(self, engine: LitePullConsumer[T]) -> None:
        """Stop the engine; what was polled last was consumed, unless the with block failed."""
        await engine.stop(consumed=not self.block_failed)


@dataclass(eq=False, repr=False)
class PullFace(Face[PullConsumer[T]], Generic[T]):
    """A consumer of one group that pulls where it is told. ``cluster`` are the name servers, or a ClientConfig.

    ``codec`` makes values of bodies. With ``broadcast`` offsets are this consumer's alone, kept in a file below
    ``offset_directory`` (``~/.rocketmq_offsets``); else they are the group's, kept by the brokers. They are stored every
    ``persist_interval``. ``trace`` and ``consume_hooks`` are as those of MemberOptions; messages count as handled as soon
    as they are pulled. ``allocation`` is how members share queues that ask for their share. Raises IllegalGroupError,
    IllegalTopicError for a trace topic, and IllegalOptionError.
    """

    kind = "consumer"

    group: str
    cluster: Cluster = None
    _: KW_ONLY
    codec: Codec[T] = BYTES  # type: ignore[assignment]
    broadcast: bool = False
    persist_interval: Duration = 5.0
    offset_directory: str | PathLike[str] | None = None
    trace: bool | str = False
    consume_hooks: Sequence[ConsumerHook] = ()
    allocation: AllocationStrategy = field(default_factory=AllocateMessageQueueAveragely)

    def __post_init__(self) -> None:
        check_group(self.group)
        self._options = MemberOptions(
            broadcast=self.broadcast,
            persist_interval=self.persist_interval,
            offset_directory=self.offset_directory,
            trace=self.trace,
            consume_hooks=self.consume_hooks,
            allocation=self.allocation,
        )
        check_types(self, but=("consume_hooks",))
        self._make_life(f"consumer of group {self.group}", self.cluster)

    def instance_config(self) -> ClientConfig:
        """Return the config of the instance it needs."""
        return config_for(self.config, broadcast=self.broadcast)

    def make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> PullConsumer[T]:
        """Make the engine. Reactor thread."""
        return PullConsumer(instance, self.group, options=self._options, codec=self.codec, run_coroutine=run_coroutine)

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Remember how far a queue is consumed; it is stored every ``persist_interval`` and on closing."""
        self.engine.update_consume_offset(queue, offset)
