"""The common part of the three faces of consumers with ``poll`` or ``pull``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike
from typing import Generic

from rocketd.client.consumer.allocation import AllocateMessageQueueAveragely, AllocationStrategy
from rocketd.client.consumer.lite_pull_consumer import LitePullConsumerEngine
from rocketd.client.consumer.options.kind_options import LitePullOptions
from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.consumer.pull_consumer import PullConsumerEngine
from rocketd.client.errors import check_consumer_group
from rocketd.client.faces.lifecycle import Face, RunCoroutine
from rocketd.client.faces.push import Cluster
from rocketd.client.faces.subscribing import SubscribingFace, Topics, config_for
from rocketd.client.hooks import ConsumerHook
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.codec import BYTES, Codec
from rocketd.client.messages.message import T
from rocketd.client.settings.config import ClientConfig, Duration
from rocketd.client.settings.option_types import check_types
from rocketd.client.stats import ConsumerStats
from rocketd.remoting.bodies.tables import MessageQueue


@dataclass(eq=False, repr=False)
class LitePullFace(LitePullOptions, SubscribingFace[LitePullConsumerEngine[T]], Generic[T]):
    """A consumer of one group with ``poll``, or to iterate over. ``cluster`` is the name servers, or a ClientConfig.

    ``topics`` are the topics to consume a share of; ``subscribe`` adds more. Without topics, call ``assign`` with
    queues once it is open. In an iteration a message is consumed when the next one is requested. ``codec`` decodes
    bodies. For hooks and traces, the handling of messages lasts from their
    poll to the next one, or to the end. All other options are those of LitePullOptions.

    Raises:

    - IllegalGroupError: the group name is invalid.
    - IllegalTopicError: a topic name is invalid.
    - IllegalOptionError: another option is invalid.
    """

    group: str
    cluster: Cluster = None
    _: KW_ONLY
    topics: Topics = ()
    codec: Codec[T] = BYTES  # type: ignore[assignment]

    # A client equals itself only, and not another one with the same options.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        check_consumer_group(self.group)
        super().__post_init__()
        self._make_life(f"consumer of group {self.group}", self.cluster)
        self._want_all(self.topics)

    def stats(self) -> ConsumerStats:
        """Return the numbers of this consumer since it was opened. Any thread may call it."""
        return self._engine.stats()

    def _make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> LitePullConsumerEngine[T]:
        """Create the engine. Reactor thread."""
        return self._subscribe_all(
            LitePullConsumerEngine(instance, self.group, options=self, codec=self.codec, run_coroutine=run_coroutine)
        )

    async def _stop_engine(self, engine: LitePullConsumerEngine[T]) -> None:
        """Stop the engine. The last polled messages were consumed, unless the with block failed."""
        await engine.stop(consumed=not self._block_failed)


@dataclass(eq=False, repr=False)
class PullFace(Face[PullConsumerEngine[T]], Generic[T]):
    """A consumer of one group pulling only on request. ``cluster`` is the name servers, or a ClientConfig.

    ``codec`` decodes bodies. With ``broadcast``, offsets belong to this consumer alone, in a file below
    ``offset_directory`` (``~/.rocketmq_offsets``). Otherwise they belong to the group, at the brokers. They are stored
    every ``persist_interval``. ``trace`` and ``consume_hooks`` are as in MemberOptions; messages count as handled as
    soon as they are pulled. ``allocation`` is the strategy for members asking for their share.

    Raises:

    - IllegalGroupError: the group name is invalid.
    - IllegalTopicError: the name of a trace topic is invalid.
    - IllegalOptionError: another option is invalid.
    """

    _kind = "consumer"

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
        check_consumer_group(self.group)
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

    def _instance_config(self) -> ClientConfig:
        """Return the config of the required instance."""
        return config_for(self._config, broadcast=self.broadcast)

    def _make_engine(self, instance: ClientInstance, run_coroutine: RunCoroutine) -> PullConsumerEngine[T]:
        """Create the engine. Reactor thread."""
        return PullConsumerEngine(
            instance, self.group, options=self._options, codec=self.codec, run_coroutine=run_coroutine
        )

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Remember the offset of a queue. It is stored every ``persist_interval`` and on closing."""
        self._engine.update_consume_offset(queue, offset)
