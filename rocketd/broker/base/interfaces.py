"""The broker as processors may use it.

Third-party processors get the same object.

Counterpart: the getters of `BrokerController` (Apache).
"""

from collections.abc import Callable, Sequence

from twisted.plugin import IPlugin
from zope.interface import Attribute, Interface

from rocketd.broker.base.hook_contexts import ConsumeMessageContext, SendMessageContext
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import Arrival, DispatchRequest
from rocketd.store.format.record import MessageExt
from rocketd.store.interfaces import IMessageStore


class IBroker(Interface):
    """A running broker.

    Its attributes do not change after processors are made. Each of their methods says which threads may call it.
    """

    settings = Attribute("BrokerSettings.")
    topics = Attribute("TopicConfigManager.")
    groups = Attribute("SubscriptionGroupManager.")
    offsets = Attribute("ConsumerOffsetManager.")
    consumers = Attribute("ConsumerManager.")
    filters = Attribute("ConsumerFilterManager: the SQL92 filters of consumer groups.")
    producers = Attribute("ProducerManager.")
    locks = Attribute("RebalanceLockManager.")
    group_guard = Attribute("GroupGuard: problems within consumer groups.")
    to_clients = Attribute("BrokerToClient: sends requests to clients.")
    schedule = Attribute("ScheduleMessageService: delivers delayed messages.")
    transactions = Attribute("TransactionService: commits, rollbacks, and pending half messages.")
    timers = Attribute("TimerMessageService: delivers messages that set their delivery time.")
    store = Attribute("IMessageStore of rocketd.store.interfaces: a MessageStore, wrapped by plugins if there are any.")
    replication = Attribute("Replication: the connections to slaves; on a slave, to the master.")
    stats = Attribute("StoreStats: counts of stored and read messages.")
    audit = Attribute("Audit: the changes made by administrators.")
    access = Attribute("AccessControl; None if aclEnable is false.")
    last_subscriptions = Attribute("LastSubscriptions: the subscriptions of groups when they were last online.")
    extensions = Attribute("Extensions: the broker extensions of third-party packages.")
    message_hooks = Attribute("MessageHooks: the message hooks of third-party packages.")
    broker_stats = Attribute("BrokerStatsManager: traffic into each topic and out to each group.")
    file_system = Attribute("IFileSystem for configuration files.")
    dispatcher = Attribute("Dispatcher: pools by name; the pool ``send`` is the storage thread.")
    address = Attribute("The address that clients connect to, ``host:port``.")
    store_host = Attribute("Address and port in stored records and message ids: 8 or 20 bytes.")

    stamps = Attribute("StampClock: timestamps of stored messages, and the time each was given.")

    def now_ms() -> int:
        """Return Unix milliseconds, for timestamps to store or show."""

    def clock_ms() -> int:
        """Return monotonic milliseconds, for measuring time."""

    def delay_offsets() -> object:
        """Copy the delivery progress of each delay level, a DelayOffsetSerializeWrapper."""

    def when_registered(callback: Callable[[], None]) -> None:
        """Call back once the name servers know all changes so far, or after 3 s, in an unspecified thread.

        Any thread.
        """

    def register_with_name_servers(reason: str) -> None:
        """Register with every name server now; the reason is for the log. Any thread."""


class ISendMessageHook(Interface):
    """Sees sends, each as a SendMessageContext.

    Called in the storage thread, ``send_message_after`` perhaps in another one. It has to be quick.
    """

    def send_message_before(context: SendMessageContext) -> None:
        """See a send before it is checked."""

    def send_message_after(context: SendMessageContext) -> None:
        """See the outcome of a send before it is answered."""


class IConsumeMessageHook(Interface):
    """Sees messages delivered to consumers and sent back by them, each as a ConsumeMessageContext.

    Called in the pull pool's thread and in the storage thread. It has to be quick.
    """

    def consume_message_before(context: ConsumeMessageContext) -> None:
        """See the answer to a pull before it is sent. A held pull has none yet."""

    def consume_message_after(context: ConsumeMessageContext) -> None:
        """See a message that was sent back and stored for a retry; ``topic`` is its original topic."""


class IMessageHookPlugin(IPlugin):
    """A descriptor found by ``twisted.plugin``, cheap to import."""

    name = Attribute("Unique name, for logs.")

    def create_hook(broker: IBroker) -> object:
        """Return a hook that provides ISendMessageHook, IConsumeMessageHook or both. ``broker`` is an IBroker."""


class IAccessValidator(Interface):
    """Decides which requests of clients pass, for example with an LDAP directory."""

    def validate(address: str, request: RemotingCommand) -> None:
        """Raise RequestError to refuse a RemotingCommand of the peer ``address``.

        Called in the pools' threads while the clients wait. Any other exception refuses the request too.
        """


class IAccessValidatorPlugin(IPlugin):
    """A descriptor of an access validator. It is used if ``aclEnable`` is true.

    With a true attribute ``replaces_accounts`` it replaces the accounts of plain_acl.yml. Otherwise a request has to
    pass both.
    """

    name = Attribute("Unique name, for logs.")

    def create_access_validator(broker: IBroker) -> IAccessValidator:
        """Return the validator. An exception prevents the broker from starting."""


class ILogDispatcher(Interface):
    """Sees each record of the log, in order, after its entries in consume queues and index."""

    def dispatch(records: Sequence[DispatchRequest]) -> None:
        """See a sequence of DispatchRequest. Called in the dispatching thread; it has to be quick.

        After a crash, the records dispatched shortly before come again.
        """


class ILogDispatcherPlugin(IPlugin):
    """A descriptor of a dispatcher of the log."""

    name = Attribute("Unique name, for logs.")

    def create_log_dispatcher(broker: IBroker) -> ILogDispatcher:
        """Return the dispatcher. The store is not open yet."""


class IArrivalListener(Interface):
    """Called when messages become visible to consumers."""

    def arrived(arrivals: Sequence[Arrival]) -> None:
        """See a sequence of Arrival tuples. Called in the dispatching thread; it has to be quick.

        The fields are topic, queue id, the queue's offset behind the message, tags code, store time in ms, properties
        and filter bitmap.
        """


class IArrivalListenerPlugin(IPlugin):
    """A descriptor of an arrival listener."""

    name = Attribute("Unique name, for logs.")

    def create_arrival_listener(broker: IBroker) -> IArrivalListener:
        """Return the listener. The store is not open yet."""


class ITransactionListener(Interface):
    """Sees the checks of half messages without an end. Called in the storage thread; it has to be quick."""

    def checked(half: MessageExt) -> None:
        """See a half message, a MessageExt, whose producer is checked."""

    def given_up(half: MessageExt) -> None:
        """See a half message set aside: it was checked ``transactionCheckMax`` times, or is too old."""


class ITransactionListenerPlugin(IPlugin):
    """A descriptor of a listener of transaction checks."""

    name = Attribute("Unique name, for logs.")

    def create_transaction_listener(broker: IBroker) -> ITransactionListener:
        """Return the listener."""


class IMessageStorePlugin(IPlugin):
    """A descriptor of a store that wraps the broker's. It is used if ``messageStorePlugIn`` names it."""

    name = Attribute("Unique name, as in the setting.")

    def wrap_store(broker: IBroker, store: IMessageStore) -> IMessageStore:
        """Return an IMessageStore that wraps ``store``: a StoreWrapper of rocketd.store.interfaces, or another class."""
