"""Changing topics, groups and settings: 17, 215, 21 / 200, 207, 201 / 25, 26.

The remarks are Apache's. A created topic is answered with code 0 and ``not set any response code``, as in Apache's
broker. The deletion of a topic also deletes the offsets, filters and statistics of groups in it, which Apache's broker
keeps. The deletion of a group deletes its filters and statistics, and on request its offsets.

Counterpart: the changes of `AdminBrokerProcessor` (Apache).
"""

from collections.abc import Callable

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.admin.parts import AdminParts
from rocketd.broker.base import problems
from rocketd.broker.base.written_answers import when_written
from rocketd.broker.tables.topics import MAX_QUEUES
from rocketd.common.logs.throttle import event_log
from rocketd.common.settings.daemon_settings import KeyResult, changes_of, update_remark
from rocketd.remoting.bodies.tables import DataVersion, SubscriptionGroupConfig, TopicConfig, TopicFilterType
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.client import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    TopicRequestHeader,
    read_header,
)
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.state.kept_settings import keep_settings

STORAGE_POOL = "send"


@implementer(IRequestProcessor)
class AdminBrokerProcessor:
    """Changes the broker's tables. ``process`` belongs to one thread, that of the admin pool."""

    _log = Logger()

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker
        self._events = event_log(self._log)
        self._config_version = DataVersion(timestamp=broker.now_ms())
        self._methods: dict[int, Callable[[RemotingCommand, IRequestContext], RemotingCommand | None]] = {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._update_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topics,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._update_group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_groups,
            RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
            RequestCode.GET_BROKER_CONFIG: self._config,
        }

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand | None:
        """Handle one request; see IRequestProcessor."""
        return self._methods[request.code](request, context)

    # ---------------------------------------------------------------- topics

    def _update_topic(self, request: RemotingCommand, context: IRequestContext) -> None:
        self._refuse_on_slave()
        header = read_header(CreateTopicRequestHeader, request)
        try:
            filter_type = TopicFilterType[header.topic_filter_type]
        except KeyError:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"topicFilterType = [{header.topic_filter_type}] value invalid"
            ) from None
        for name, count in (("readQueueNums", header.read_queue_nums), ("writeQueueNums", header.write_queue_nums)):
            if not 0 <= count <= MAX_QUEUES:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR, f"{name} is {count}: a topic has 0 to {MAX_QUEUES} queues"
                )
        self._broker.topics.check_may_change(header.topic)
        self._log_call("sets topic", header.topic, context)
        answer = RemotingCommand.response(ResponseCode.SUCCESS, problems.NOT_SET_REMARK)
        before = self._broker.topics.select(header.topic)
        self._broker.topics.update(
            TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=filter_type,
                topic_sys_flag=header.topic_sys_flag or 0,
            ),
            # The creator of a topic looks for its route next.
            when_written(
                context,
                f"the creation or change of topic {header.topic}",
                lambda: self._broker.when_registered(lambda: context.answer(answer)),
            ),
        )
        self._broker.audit.note(
            request, context, "set topic", header.topic, before, self._broker.topics.select(header.topic)
        )

    def _delete_topic(self, request: RemotingCommand, context: IRequestContext) -> None:
        self._refuse_on_slave()
        topic = read_header(TopicRequestHeader, request).topic
        self._broker.topics.check_may_change(topic)
        self._log_call("deletes topic", topic, context)
        what = f"the deletion of topic {topic}, whose messages are kept until the command is repeated,"

        def forget_offsets() -> None:
            # Offsets first, then queues: in a new topic of this name, a group must not begin at its old offset.
            self._broker.offsets.remove_topic(topic)
            self._broker.filters.forget_topic(topic)
            self._broker.offsets.save(when_written(context, what, delete_queues))

        def delete_queues() -> None:
            self._broker.dispatcher.pool(STORAGE_POOL).call(delete)

        def delete() -> None:
            try:
                self._broker.store.delete_topic(topic)
            except Exception as error:
                self._log.failure("the queues of topic {topic} could not be deleted", topic=topic)
                context.answer(RemotingCommand.response(ResponseCode.SYSTEM_ERROR, str(error)))
            else:
                self._broker.topics.deleting.discard(topic)
                # Behind the sends that came before.
                self._broker.broker_stats.on_topic_deleted(topic)
                context.answer(RemotingCommand.response())

        before = self._broker.topics.select(topic)
        self._broker.topics.deleting.add(topic)
        self._broker.topics.delete(topic, when_written(context, what, forget_offsets))
        self._broker.audit.note(request, context, "delete topic", topic, before)

    def _all_topics(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        return RemotingCommand.response(ext_fields={}, body=self._broker.topics.snapshot().encode())

    # ---------------------------------------------------------------- groups

    def _update_group(self, request: RemotingCommand, context: IRequestContext) -> None:
        self._refuse_on_slave()
        config = SubscriptionGroupConfig.decode(request.body)
        self._log_call("sets consumer group", config.group_name, context)
        before = self._broker.groups.get(config.group_name)
        if before is None:
            self._broker.groups.check_new(config.group_name)
        self._broker.groups.update(
            config,
            when_written(
                context,
                f"the creation or change of consumer group {config.group_name}",
            ),
        )
        self._broker.audit.note(request, context, "set consumer group", config.group_name, before, config)

    def _delete_group(self, request: RemotingCommand, context: IRequestContext) -> None:
        self._refuse_on_slave()
        header = read_header(DeleteSubscriptionGroupRequestHeader, request)
        self._log_call("deletes consumer group", header.group_name, context)
        what = f"the deletion of consumer group {header.group_name}"

        def forget_offsets() -> None:
            self._broker.offsets.remove_group(header.group_name)
            self._broker.offsets.save(when_written(context, what))

        before = self._broker.groups.get(header.group_name)
        then = forget_offsets if header.remove_offset else None
        self._broker.groups.delete(header.group_name, when_written(context, what, then))
        self._broker.broker_stats.on_group_deleted(header.group_name)
        self._broker.filters.forget_group(header.group_name)
        action = "delete consumer group with its offsets" if header.remove_offset else "delete consumer group"
        self._broker.audit.note(request, context, action, header.group_name, before)

    def _all_groups(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        return RemotingCommand.response(body=self._broker.groups.snapshot().encode())

    # ---------------------------------------------------------------- settings

    def _update_config(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand | None:
        if request.body:
            settings = self._broker.settings
            pending = dict(settings.pending)
            before = settings.shown_values()
            try:
                results = settings.update(request.body.decode("utf-8", "replace"))
            except ValueError:
                raise RequestError(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
            for result in results:
                self._log_call("sets", str(result), context)
            self._broker.audit.note_settings(request, context, before | pending, results)
            accepted = changes_of(results)
            lost = None
            if accepted:
                self._config_version = self._config_version.next_version(self._broker.now_ms())
                lost = self._keep_config(accepted)
                if lost is not None:
                    settings.pending = pending
            if "brokerPermission" in accepted:
                self._broker.topics.next_version()
                self._broker.register_with_name_servers("brokerPermission was changed")
            self._refuse_rejected_keys(results, lost)
            answer = RemotingCommand.response(remark=update_remark(results))
            if "brokerPermission" not in accepted:
                return answer
            self._broker.when_registered(lambda: context.answer(answer))
            return None
        return RemotingCommand.response()

    def _refuse_rejected_keys(self, results: list[KeyResult], lost: str | None) -> None:
        """Raise RequestError if a key had no effect, or will have none at the next start.

        Apache's broker answers with success, and its caller never knows.
        """
        refused = [str(result) for result in results if not result.accepted]
        if lost is not None:
            refused.append(lost)
        if refused:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "; ".join(refused))

    def _keep_config(self, changes: dict[str, str]) -> str | None:
        """Write accepted values for the next start. Return the reason of a failure, None on success."""
        settings = self._broker.settings
        path = settings.config_file or settings.kept_changes_file()
        try:
            keep_settings(
                self._broker.file_system,
                path,
                changes,
                given=settings.config_file is not None,
                beside=settings.changes_file,
            )
        except (OSError, ValueError) as error:
            self._log.error("settings cannot be kept in {path}: {error}", path=path, error=error)
            return f"the accepted values are lost at the next start: they cannot be written to {path}: {error}"
        return None

    def _config(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        return RemotingCommand.response(
            ext_fields={"version": self._config_version.encode().decode()},
            body=self._broker.settings.properties_text().encode(),
        )

    # ---------------------------------------------------------------- common

    def _refuse_on_slave(self) -> None:
        if self._broker.settings.store.broker_role == "SLAVE":
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
            )

    def _log_call(self, what: str, name: str, context: IRequestContext) -> None:
        self._events.info(what, "{address} {what} {name}", address=context.connection.address, what=what, name=name)
