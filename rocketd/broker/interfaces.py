"""What processors may use of a broker.

Answers to the getters of Apache's BrokerController. Third-party processors get the same object.
"""

from collections.abc import Callable
from typing import Any

from twisted.plugin import IPlugin
from zope.interface import Attribute, Interface


class IBroker(Interface):
    """A running broker. Its attributes do not change once processors are made; their methods say which threads may call."""

    settings = Attribute("BrokerSettings.")
    topics = Attribute("TopicConfigManager.")
    groups = Attribute("SubscriptionGroupManager.")
    offsets = Attribute("ConsumerOffsetManager.")
    consumers = Attribute("ConsumerManager.")
    filters = Attribute("ConsumerFilterManager: what groups have subscribed to by SQL92.")
    producers = Attribute("ProducerManager.")
    locks = Attribute("RebalanceLockManager.")
    group_guard = Attribute("GroupGuard: what is wrong within consumer groups.")
    to_clients = Attribute("BrokerToClient: requests to clients.")
    schedule = Attribute("ScheduleMessageService: the delivery of delayed messages.")
    transactions = Attribute("TransactionService: ends of transactions, and the half messages that wait for theirs.")
    timers = Attribute("TimerMessageService: the delivery of messages with a time of their own.")
    store = Attribute("MessageStore.")
    replication = Attribute("Replication: slaves, and on a slave the master.")
    stats = Attribute("StoreStats: what is stored and read.")
    access = Attribute("AccessControl, None where aclEnable is false.")
    last_subscriptions = Attribute("LastSubscriptions: what groups wanted when they were last online.")
    message_hooks = Attribute("MessageHooks: what packages of third parties see of messages.")
    broker_stats = Attribute("BrokerStatsManager: what goes into each topic and out to each group.")
    file_system = Attribute("IFileSystem for configuration files.")
    dispatcher = Attribute("Dispatcher: pools by name; that of ``send`` is the storage thread.")
    address = Attribute("What clients are told to connect to, ``host:port``.")
    store_host = Attribute("Address and port in stored records and message ids: 8 or 20 bytes.")

    stamps = Attribute("StampClock: timestamps of stored messages, and when each was given.")

    def now_ms() -> int:
        """Unix milliseconds, for timestamps that are stored or shown."""

    def clock_ms() -> int:
        """Milliseconds of a clock that only goes forward, for everything that takes time."""

    def delay_offsets() -> object:
        """Copy how far each delay level has been delivered, a DelayOffsetSerializeWrapper."""

    def when_registered(callback: Callable[[], None]) -> None:
        """Call back once the name servers know of all changes so far, or after 3 s, from whatever thread. Any thread."""

    def register_with_name_servers(reason: str) -> None:
        """Register with every name server now; the reason is for the log. May be called from any thread."""


class ISendMessageHook(Interface):
    """Sees sends, each as a SendMessageContext. Called in the storage thread, ``send_message_after`` perhaps in another one;
    has to be quick.
    """

    def send_message_before(context: Any) -> None:
        """See a send before it is checked."""

    def send_message_after(context: Any) -> None:
        """See how it has ended, before it is answered."""


class IConsumeMessageHook(Interface):
    """Sees what consumers get and give back, each as a ConsumeMessageContext. Called in the threads of pulls and of storage;
    has to be quick.
    """

    def consume_message_before(context: Any) -> None:
        """See the answer to a pull before it is sent; a pull that is held has none yet."""

    def consume_message_after(context: Any) -> None:
        """See a message that was given back and stored to be tried again, ``topic`` being the one it came from."""


class IMessageHookPlugin(IPlugin):
    """A descriptor found by ``twisted.plugin``, cheap to import."""

    name = Attribute("Unique name, for logs.")

    def create_hook(broker: Any) -> Any:
        """Make a hook that provides ISendMessageHook, IConsumeMessageHook or both. ``broker`` is an IBroker."""
