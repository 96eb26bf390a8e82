"""Offsets that administrators set: 222 (220) by time, to the members of a group, and 314 from another group.

Answers to Broker2Client.resetOffset and AdminBrokerProcessor.cloneGroupOffset. The members apply new offsets themselves
and commit them; without any, the broker refuses, and administrators commit offsets as a consumer would. Unlike there,
each member gets the form that it can read, whatever the administrator's language is, nobody is told anything when one of
them is too old, and a clone without a topic copies all topics; a clone that was answered is on the disk.
"""

from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.processors.admin import NOT_SET_REMARK
from rocketd.broker.processors.client_relay import refuse_old_clients
from rocketd.broker.written_answers import when_written
from rocketd.remoting.admin_bodies import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from rocketd.remoting.admin_headers import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader
from rocketd.remoting.bodies import MessageQueue
from rocketd.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers import read_header, write_header
from rocketd.remoting.interfaces import IRequestProcessor

CODES = (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.CLONE_GROUP_OFFSET)

RESET_TIMEOUT_MS = 5000
END_OF_QUEUE = -1


@implementer(IRequestProcessor)
class OffsetResetProcessor:
    """Sets groups to other offsets. ``process`` may run in several threads at once."""

    _log = Logger()

    def __init__(self, broker: Any) -> None:
        """``broker`` is an IBroker."""
        self._broker = broker

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand | None:
        """Handle one request; see IRequestProcessor."""
        if request.code == RequestCode.CLONE_GROUP_OFFSET:
            self._clone(request, context)
            return None
        return self._reset(request, context)

    # ---------------------------------------------------------------- by time

    def _reset(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        header = read_header(ResetOffsetRequestHeader, request)
        self._log.info(
            "{address} resets group {group} of {topic} to {timestamp}{force}",
            address=context.connection.address,
            group=header.group,
            topic=header.topic,
            timestamp=header.timestamp,
            force=", by force" if header.is_force else "",
        )
        config = self._broker.topics.select(header.topic)
        if config is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        table = self._new_offsets(header, config.write_queue_nums)
        info = self._broker.consumers.find(header.group)
        clients = [] if info is None else info.clients()
        if not clients:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}",
            )
        refuse_old_clients(clients)
        # Apache's leaves the force of the administrator's request out: the offsets say it all.
        fields = write_header(ResetOffsetRequestHeader(header.topic, header.group, header.timestamp, False))
        body = ResetOffsetBody(table).encode()
        for client in clients:
            self._broker.to_clients.tell(
                client.connection,
                RemotingCommand(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    dict(fields),
                    _body_for_c(table) if client.language == LanguageCode.CPP else body,
                ),
                RESET_TIMEOUT_MS,
            )
        return RemotingCommand.response(remark=NOT_SET_REMARK, body=body)

    def _new_offsets(self, header: ResetOffsetRequestHeader, queues: int) -> dict[MessageQueue, int]:
        """Find the offsets at the time; without force none lies behind the group's own. Raises RequestError."""
        store, broker_name = self._broker.store, self._broker.settings.broker.broker_name
        table = {}
        for queue_id in range(queues):
            consumed = self._broker.offsets.query(header.group, header.topic, queue_id)
            if consumed < 0:
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            if header.timestamp == END_OF_QUEUE:
                offset = store.get_max_offset(header.topic, queue_id)
            else:
                offset = max(0, store.get_offset_by_time(header.topic, queue_id, header.timestamp))
            queue = MessageQueue(header.topic, broker_name, queue_id)
            table[queue] = offset if header.is_force else min(offset, consumed)
        return table

    # ---------------------------------------------------------------- from another group

    def _clone(self, request: RemotingCommand, context: Any) -> None:
        header = read_header(CloneGroupOffsetRequestHeader, request)
        source, topic = header.src_group, (header.topic or "").strip()
        info = None if header.offline else self._broker.consumers.find(source)
        for name in [topic] if topic else sorted(self._broker.offsets.topics_of(source)):
            if self._broker.topics.select(name) is None:
                self._log.warn("offsets of {topic} are not cloned: there is no such topic", topic=name)
                continue
            if info is not None and info.subscriptions and info.find_subscription(name) is None:
                self._log.warn(
                    "offsets of {topic} are not cloned: group {group} is online and does not subscribe to it",
                    topic=name,
                    group=source,
                )
                continue
            self._broker.offsets.clone(source, header.dest_group, name)
            self._log.info(
                "{address} clones the offsets of {topic} from group {source} to {target}",
                address=context.connection.address,
                topic=name,
                source=source,
                target=header.dest_group,
            )
        what = f"the copy of the offsets of group {source} to {header.dest_group}"
        self._broker.offsets.save(when_written(context, what))


def _body_for_c(table: dict[MessageQueue, int]) -> bytes:
    return ResetOffsetBodyForC(
        [MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in table.items()]
    ).encode()
