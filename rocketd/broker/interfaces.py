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
    extensions = Attribute("Extensions: what packages of third parties add to the broker.")
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


class IAccessValidator(Interface):
    """Decides which requests of clients pass, by an LDAP directory for instance."""

    def validate(address: str, request: Any) -> None:
        """Raise RequestError to refuse a RemotingCommand of the peer ``address``. Called in the pools' threads; the
        clients wait for it. Any other exception refuses the request, too.
        """


class IAccessValidatorPlugin(IPlugin):
    """A descriptor of an access validator. It is used if ``aclEnable`` is true.

    If it has an attribute ``replaces_accounts`` that is true, the accounts of plain_acl.yml are not used. Otherwise a
    request has to pass both.
    """

    name = Attribute("Unique name, for logs.")

    def create_access_validator(broker: Any) -> IAccessValidator:
        """Make the validator. An exception keeps the broker from starting."""


class ILogDispatcher(Interface):
    """Sees each record of the log, in order, after it has its entries in consume queues and index."""

    def dispatch(records: Any) -> None:
        """See records, a sequence of DispatchRequest. Called in the thread that dispatches; has to be quick.

        After a crash, records come once more: those that were dispatched shortly before.
        """


class ILogDispatcherPlugin(IPlugin):
    """A descriptor of a dispatcher of the log."""

    name = Attribute("Unique name, for logs.")

    def create_log_dispatcher(broker: Any) -> ILogDispatcher:
        """Make the dispatcher. The store is not open yet."""


class IArrivalListener(Interface):
    """Told when messages become visible to consumers."""

    def arrived(arrivals: Any) -> None:
        """See a sequence of Arrival: tuples of topic, queue id, the queue's offset behind the message, tags code, store time
        in ms, properties and bitmap of filters. Called in the thread that dispatches; has to be quick.
        """


class IArrivalListenerPlugin(IPlugin):
    """A descriptor of an arrival listener."""

    name = Attribute("Unique name, for logs.")

    def create_arrival_listener(broker: Any) -> IArrivalListener:
        """Make the listener. The store is not open yet."""


class ITransactionListener(Interface):
    """Told what becomes of half messages that have not ended. Called in the storage thread; has to be quick."""

    def checked(half: Any) -> None:
        """A producer is asked about a half message, a MessageExt."""

    def given_up(half: Any) -> None:
        """A half message was checked ``transactionCheckMax`` times, or is too old, and is put aside."""


class ITransactionListenerPlugin(IPlugin):
    """A descriptor of a listener of transaction checks."""

    name = Attribute("Unique name, for logs.")

    def create_transaction_listener(broker: Any) -> ITransactionListener:
        """Make the listener."""


class IMessageStorePlugin(IPlugin):
    """A descriptor of a store that wraps the broker's. It is used if ``messageStorePlugIn`` names it."""

    name = Attribute("Unique name, as the setting has it.")

    def wrap_store(broker: Any, store: Any) -> Any:
        """Return an IMessageStore that wraps one: a StoreWrapper of rocketd.store.interfaces, or a store of its own."""
