"""Heartbeats, unregistration and the check of filter expressions: 34, 35, 46.

Counterpart: `ClientManageProcessor` (Apache).
"""

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.base import problems
from rocketd.broker.base.interleaved_work import MAX_PER_CONNECTION, Steps, Turns
from rocketd.broker.clients.client import ClientChannelInfo
from rocketd.broker.clients.parts import ClientParts
from rocketd.broker.tables.filters.subscriptions import is_tag_type
from rocketd.broker.tables.new_names import NewNameLimit
from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import compile_selector
from rocketd.remoting.bodies.tables import CheckClientRequestBody, ConsumerData, HeartbeatData, SubscriptionData
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import UnregisterClientRequestHeader, read_header
from rocketd.remoting.interfaces import IConnection, IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand

LOGGED_GROUPS = 20
"""The number of new groups in a heartbeat that get a log line each."""
SHORT_HEARTBEAT_BYTES = 16 << 10
"""Longer heartbeats, of about 60 consumer groups or more, run in a separate thread, in turns."""
LONG_HEARTBEATS_POOL = "heartbeat-long"
LONG_HEARTBEATS_BYTES = 64 << 20
"""The maximum bytes of long heartbeats in progress; further ones are refused."""
STEP_COST = 500
"""The size of one step of a long heartbeat.

That is this number of subscriptions or producer groups, or 50 consumer groups.
"""
GROUP_COST = 10


@implementer(IRequestProcessor)
class ClientManageProcessor:
    """Maintains the tables of clients. ``process`` may run in several threads at once."""

    _log = Logger()

    def __init__(self, broker: ClientParts) -> None:
        self._broker = broker
        self._turns = Turns(
            lambda step: broker.dispatcher.pool(LONG_HEARTBEATS_POOL).call(step),
            lambda function, result: broker.dispatcher.call_from_thread(function, result),
            LONG_HEARTBEATS_BYTES,
        )

    def process(
        self, request: RemotingCommand, context: IRequestContext
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Handle one request; see IRequestProcessor."""
        if request.code == RequestCode.HEART_BEAT:
            return self._heartbeat(request, context)
        if request.code == RequestCode.UNREGISTER_CLIENT:
            return self._unregister(request, context)
        return self._check_client_config(request)

    def _heartbeat(
        self, request: RemotingCommand, context: IRequestContext
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        size, limit = len(request.body or b""), self._broker.settings.broker.max_heartbeat_bytes
        if limit and size > limit:
            raise self._refused(problems.HEARTBEAT_TOO_LONG.error(count=size, limit=limit))
        steps = self._steps(request, context.connection)
        if size <= SHORT_HEARTBEAT_BYTES and not self._turns.has(context.connection):
            return _at_once(steps)
        done = self._turns.begin(context.connection, steps, size)
        if done is None:
            raise self._refused(
                problems.HEARTBEATS_UNDER_WAY.error(limit=MAX_PER_CONNECTION, bytes=LONG_HEARTBEATS_BYTES)
            )
        return done

    def _steps(self, request: RemotingCommand, connection: IConnection) -> Steps:
        """Register the content of a heartbeat in steps of STEP_COST; returns the answer."""
        heartbeat = HeartbeatData.decode(request.body)
        self._check_size(heartbeat, connection)
        yield
        now = self._broker.clock_ms()
        cost = new = refused = 0
        first_refused = ""
        illegal: RequestError | None = None
        for consumer in heartbeat.consumer_data_set:
            if connection.closed:
                return RemotingCommand.response()
            if self._is_new(consumer.group_name):
                try:
                    self._broker.groups.check_new(consumer.group_name)
                except RequestError as error:
                    illegal = illegal or error
                    continue
                if not self._may_take(consumer.group_name, new, connection.address):
                    refused += 1
                    first_refused = first_refused or consumer.group_name
                    continue
                new += 1
            notify = self._prepare_group(consumer)
            # Each group has a separate entry: a client may leave one group and stay in another.
            client = ClientChannelInfo.of(request, connection, heartbeat.client_id, now)
            self._broker.consumers.register(client, consumer, notify, quiet=new > LOGGED_GROUPS)
            yield from self._broker.filters.register_in_steps(consumer.group_name, consumer.subscription_data_set)
            cost += GROUP_COST + len(consumer.subscription_data_set)
            if cost >= STEP_COST:
                cost = 0
                yield
        for producer in heartbeat.producer_data_set:
            client = ClientChannelInfo.of(request, connection, heartbeat.client_id, now)
            self._broker.producers.register(producer.group_name, client)
            cost += 1
            if cost >= STEP_COST:
                cost = 0
                yield
        if new > LOGGED_GROUPS:
            self._log.info(
                "{client} at {address} has joined {count} new consumer groups by one heartbeat, the last of them not logged",
                client=heartbeat.client_id,
                address=connection.address,
                count=new,
            )
        if illegal is not None:
            raise illegal
        if refused:
            if self._broker.groups.limit.is_full:
                raise self._broker.groups.limit.error(first_refused)
            raise self._too_many(refused, len(heartbeat.consumer_data_set))
        return RemotingCommand.response()

    def _check_size(self, heartbeat: HeartbeatData, connection: IConnection) -> None:
        """Raise RequestError if the heartbeat exceeds the connection's limits. Repeated groups count again."""
        broker = self._broker
        producers, consumers = heartbeat.producer_data_set, heartbeat.consumer_data_set
        further, wanted = broker.consumers.count_further(connection, {data.group_name for data in consumers})
        counts = {
            "producer": len(producers)
            + broker.producers.count_further(connection, {data.group_name for data in producers}),
            "consumer": len(consumers) + further,
        }
        limit = broker.settings.broker.max_groups_per_connection
        for kind, count in counts.items():
            if limit and count > limit:
                raise self._refused(problems.TOO_MANY_GROUPS.error(count=count, kind=kind, limit=limit))
        wanted += sum([len(data.subscription_data_set) for data in consumers])
        limit = broker.settings.broker.max_subscriptions_per_connection
        if limit and wanted > limit:
            raise self._refused(problems.TOO_MANY_SUBSCRIPTIONS.error(count=wanted, limit=limit))

    def _refused(self, error: RequestError) -> RequestError:
        """Count and log the refusal of a whole heartbeat."""
        self._broker.dispatcher.limits.reached("heartbeats refused", "a heartbeat is refused: {why}", why=error.remark)
        return error

    def _is_new(self, group: str) -> bool:
        broker = self._broker
        return broker.groups.get(group) is None and broker.consumers.find(group) is None

    def _may_take(self, group: str, new: int, address: str) -> bool:
        """Whether an unknown group may be registered after ``new`` others of the same heartbeat."""
        limit = self._broker.settings.broker.max_new_groups_per_heartbeat
        admission: NewNameLimit = self._broker.groups.limit
        return (not limit or new < limit) and admission.admits(group, address)

    def _too_many(self, refused: int, total: int) -> RequestError:
        limit = self._broker.settings.broker.max_new_groups_per_heartbeat
        self._broker.dispatcher.limits.reached(
            "groups of heartbeats refused",
            "{refused} of {all} consumer groups of a heartbeat were not registered (maxNewGroupsPerHeartbeat is {limit})",
            refused,
            refused=refused,
            all=total,
            limit=limit,
        )
        return problems.HEARTBEAT_GROUPS_LIMITED.error(refused=refused, total=total, limit=limit)

    def _prepare_group(self, consumer: ConsumerData) -> bool:
        """Create the group and its retry topic if missing; return whether its members want notices."""
        group = self._broker.groups.find(consumer.group_name, admitted=True)
        if group is None:
            return True
        self._broker.topics.retry_topic(group, unit_mode=consumer.unit_mode)
        return bool(group.notify_consumer_ids_changed_enable)

    def _unregister(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        header = read_header(UnregisterClientRequestHeader, request)
        if header.producer_group is not None:
            self._broker.producers.unregister(header.producer_group, context.connection)
        if header.consumer_group is not None:
            group = self._broker.groups.get(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._broker.consumers.unregister(header.consumer_group, context.connection, notify)
        return RemotingCommand.response(ext_fields={})

    def _check_client_config(self, request: RemotingCommand) -> RemotingCommand:
        if request.body:
            subscription = CheckClientRequestBody.decode(request.body).subscription_data
            if subscription is not None and not is_tag_type(subscription.expression_type):
                self._check_expression(subscription)
        return RemotingCommand.response()

    def _check_expression(self, subscription: SubscriptionData) -> None:
        if not self._broker.settings.broker.enable_property_filter:
            raise problems.FILTER_NOT_SUPPORTED.error(kind=subscription.expression_type)
        try:
            compile_selector(subscription.expression_type, subscription.sub_string)
        except SelectorError as error:
            raise problems.EXPRESSION_PARSE_FAILED.error(found=error) from error


def _at_once(steps: Steps) -> RemotingCommand:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: RemotingCommand = end.value
            return answer
