"""Heartbeats, goodbyes and the check of filter expressions: 34, 35, 46.

Answers to Apache's ClientManageProcessor.
"""

from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker import problems
from rocketd.broker.clients import ClientChannelInfo
from rocketd.broker.subscriptions import is_tag_type
from rocketd.common import names, permission, sysflag
from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import compile_selector
from rocketd.remoting.bodies import CheckClientRequestBody, ConsumerData, HeartbeatData, SubscriptionData
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.headers import UnregisterClientRequestHeader, read_header
from rocketd.remoting.interfaces import IRequestProcessor

HEARTBEAT_CODES = (RequestCode.HEART_BEAT,)
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
        for consumer in heartbeat.consumer_data_set:
            notify = self._prepare_group(consumer)
            # Each group has an entry of its own: a client may leave one and stay in another.
            client = ClientChannelInfo.of(request, context.connection, heartbeat.client_id, now)
            self._broker.consumers.register(client, consumer, notify)
            self._broker.filters.register_group(consumer.group_name, consumer.subscription_data_set)
        for producer in heartbeat.producer_data_set:
            client = ClientChannelInfo.of(request, context.connection, heartbeat.client_id, now)
            self._broker.producers.register(producer.group_name, client)
        return RemotingCommand.response()

    def _prepare_group(self, consumer: ConsumerData) -> bool:
        """Make the group and its retry topic where they are missing; returns whether its members want notices."""
        group = self._broker.groups.find(consumer.group_name)
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
            group = self._broker.groups.find(header.consumer_group)
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
