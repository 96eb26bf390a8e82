"""Heartbeats, goodbyes and the check of filter expressions: 34, 35, 46.

Answers to Apache's ClientManageProcessor.
"""

from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker import problems
from rocketd.broker.clients import ClientChannelInfo
from rocketd.broker.new_names import NewNameLimit
from rocketd.broker.subscriptions import is_tag_type
from rocketd.common import names, permission, sysflag
from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import compile_selector
from rocketd.remoting.bodies import CheckClientRequestBody, ConsumerData, HeartbeatData, SubscriptionData
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers import UnregisterClientRequestHeader, read_header
from rocketd.remoting.interfaces import IRequestProcessor

HEARTBEAT_CODES = (RequestCode.HEART_BEAT,)
LOGGED_GROUPS = 20
"""New groups of one heartbeat that have log lines of their own."""
CLIENT_CODES = (RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG)


@implementer(IRequestProcessor)
class ClientManageProcessor:
    """Keeps the tables of clients. ``process`` may run in several threads at once."""

    _log = Logger()

    def __init__(self, broker: Any) -> None:
        """``broker`` is an IBroker."""
        self._broker = broker

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        if request.code == RequestCode.HEART_BEAT:
            return self._heartbeat(request, context)
        if request.code == RequestCode.UNREGISTER_CLIENT:
            return self._unregister(request, context)
        return self._check_client_config(request)

    def _heartbeat(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        heartbeat = HeartbeatData.decode(request.body)
        now = self._broker.clock_ms()
        new = refused = 0
        for consumer in heartbeat.consumer_data_set:
            if self._is_new(consumer.group_name):
                if not self._may_take(consumer.group_name, new):
                    refused += 1
                    continue
                new += 1
            notify = self._prepare_group(consumer)
            # Each group has an entry of its own: a client may leave one and stay in another.
            client = ClientChannelInfo.of(request, context.connection, heartbeat.client_id, now)
            self._broker.consumers.register(client, consumer, notify, quiet=new > LOGGED_GROUPS)
            self._broker.filters.register_group(consumer.group_name, consumer.subscription_data_set)
        for producer in heartbeat.producer_data_set:
            client = ClientChannelInfo.of(request, context.connection, heartbeat.client_id, now)
            self._broker.producers.register(producer.group_name, client)
        if new > LOGGED_GROUPS:
            self._log.info(
                "{client} at {address} has joined {count} new consumer groups by one heartbeat, the last of them not logged",
                client=heartbeat.client_id,
                address=context.connection.address,
                count=new,
            )
        if refused:
            raise self._too_many(refused, len(heartbeat.consumer_data_set))
        return RemotingCommand.response()

    def _is_new(self, group: str) -> bool:
        broker = self._broker
        return broker.groups.get(group) is None and broker.consumers.find(group) is None

    def _may_take(self, group: str, new: int) -> bool:
        """Whether an unknown group may be registered, as so many of the same heartbeat were."""
        limit = self._broker.settings.broker.max_new_groups_per_heartbeat
        admission: NewNameLimit = self._broker.groups.limit
        return (not limit or new < limit) and admission.admits(group)

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
        """Make the group and its retry topic where they are missing; returns whether its members want notices."""
        group = self._broker.groups.find(consumer.group_name, admitted=True)
        if group is None:
            return True
        self._broker.topics.create_topic_in_send_message_back(
            names.retry_topic(consumer.group_name),
            group.retry_queue_nums,
            permission.READ | permission.WRITE,
            sysflag.topic_sys_flag(unit=False, unit_sub=consumer.unit_mode),
        )
        return bool(group.notify_consumer_ids_changed_enable)

    def _unregister(self, request: RemotingCommand, context: Any) -> RemotingCommand:
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
