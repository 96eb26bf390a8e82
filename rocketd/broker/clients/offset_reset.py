"""Offset resets by administrators: 222 (220) by time, through the members of a group; 314 from another group.

The members apply new offsets themselves and commit them. Without members the broker refuses, and administrators commit
offsets as a consumer would. Unlike in Apache's broker:

- Each member gets the form it can read, whatever the administrator's language.
- If one of the members is too old, none of them is notified.
- A clone without a topic copies all topics.
- A clone is answered after it is on disk.

Counterpart: `Broker2Client.resetOffset`, `AdminBrokerProcessor.cloneGroupOffset` (Apache).
"""

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.base import problems
from rocketd.broker.base.written_answers import when_written
from rocketd.broker.clients.parts import ClientParts
from rocketd.broker.clients.relay import refuse_old_clients
from rocketd.common.logs.throttle import event_log
from rocketd.remoting.bodies.admin import MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.remoting.errors import RequestError
from rocketd.remoting.headers.admin import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader
from rocketd.remoting.headers.client import read_header, write_header
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import LanguageCode, RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

RESET_TIMEOUT_MS = 5000
END_OF_QUEUE = -1


@implementer(IRequestProcessor)
class OffsetResetProcessor:
    """Resets the offsets of groups. ``process`` may run in several threads at once."""

    _log = Logger()

    def __init__(self, broker: ClientParts) -> None:
        self._broker = broker
        self._events = event_log(self._log)

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand | None:
        """Handle one request; see IRequestProcessor."""
        if request.code == RequestCode.CLONE_GROUP_OFFSET:
            self._clone(request, context)
            return None
        return self._reset(request, context)

    # ---------------------------------------------------------------- by time

    def _reset(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        header = read_header(ResetOffsetRequestHeader, request)
        self._events.info(
            "resets",
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
        before = self._offsets(header.group, header.topic)
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
        # Apache's broker leaves out the force flag of the administrator's request: the offsets say everything.
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
        after = {str(queue.queue_id): offset for queue, offset in table.items()}
        self._broker.audit.note(
            request, context, "reset offsets of consumers", f"{header.topic}@{header.group}", before, after
        )
        return RemotingCommand.response(remark=problems.NOT_SET_REMARK, body=body)

    def _offsets(self, group: str, topic: str) -> dict[str, int]:
        return {str(queue_id): offset for queue_id, offset in self._broker.offsets.of_topic(group, topic).items()}

    def _new_offsets(self, header: ResetOffsetRequestHeader, queues: int) -> dict[MessageQueue, int]:
        """Return the offsets at the time; without force none lies beyond the group's current one.

        Raises RequestError.
        """
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

    def _clone(self, request: RemotingCommand, context: IRequestContext) -> None:
        header = read_header(CloneGroupOffsetRequestHeader, request)
        source, topic = header.src_group, (header.topic or "").strip()
        info = None if header.offline else self._broker.consumers.find(source)
        for name in [topic] if topic else sorted(self._broker.offsets.topics_of(source)):
            if self._broker.topics.select(name) is None:
                self._events.warn("unknown", "offsets of {topic} are not cloned: the topic does not exist", topic=name)
                continue
            if info is not None and info.subscriptions and info.find_subscription(name) is None:
                self._events.warn(
                    "not subscribed",
                    "offsets of {topic} are not cloned: group {group} is online and does not subscribe to it",
                    topic=name,
                    group=source,
                )
                continue
            before = self._offsets(header.dest_group, name)
            self._broker.offsets.clone(source, header.dest_group, name)
            after = self._offsets(header.dest_group, name)
            subject = f"{name}@{header.dest_group}"
            self._broker.audit.note(request, context, f"copy offsets of group {source}", subject, before, after)
            self._events.info(
                "clones",
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
