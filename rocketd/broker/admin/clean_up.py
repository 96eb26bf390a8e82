"""Deletion on request: queues without messages (306), queues of unknown topics (316), expired log files (329).

An answer means that the deletion was requested. Log files are deleted in the store's rounds, as in Apache's broker;
queues after the messages now being dispatched to them.

Counterpart: the clean-up requests of `AdminBrokerProcessor` (Apache).
"""

from collections.abc import Callable

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.broker.admin.parts import AdminParts
from rocketd.common.logs.throttle import event_log
from rocketd.common.names import LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_OP_HALF_TOPIC
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand

NEVER_UNUSED = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_OP_HALF_TOPIC))
"""Topics whose queues are kept even if the table does not list them."""


_ACTIONS = {
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: ("delete", "queues without messages"),
    RequestCode.CLEAN_UNUSED_TOPIC: ("delete", "queues of unknown topics"),
    RequestCode.DELETE_EXPIRED_COMMITLOG: ("ask for the deletion of", "expired log files"),
}
"""Action and subject for the audit."""


@implementer(IRequestProcessor)
class CleanUpProcessor:
    """Deletes unused queues and files. ``process`` belongs to the storage thread."""

    _log = Logger()

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker
        self._events = event_log(self._log)
        self._methods: dict[int, Callable[[], list[str]]] = {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_expired_files,
        }

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        self._events.info(
            "asks", "{address} asks for {what}", address=context.connection.address, what=RequestCode(request.code).name
        )
        try:
            deleted = self._methods[request.code]()
        except OSError as error:
            self._log.failure("{what} failed", what=RequestCode(request.code).name)
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, str(error))
        action, subject = _ACTIONS[RequestCode(request.code)]
        self._broker.audit.note(request, context, action, subject, deleted or None)
        return RemotingCommand.response()

    def _delete_expired_files(self) -> list[str]:
        self._broker.store.execute_delete_files_manually()
        return []

    def _clean_expired_queues(self) -> list[str]:
        deleted = []
        for topic, queue_id in self._broker.store.delete_expired_queues():
            # Its next message gets offset 0 again: a group continuing at an old offset would skip new messages.
            self._broker.offsets.remove_queue(topic, queue_id)
            self._events.info(
                "queues", "queue {queue} of {topic} is deleted: it had no messages", queue=queue_id, topic=topic
            )
            deleted.append(f"{topic} {queue_id}")
        return deleted

    def _clean_unused_topics(self) -> list[str]:
        broker = self._broker
        deleted = []
        for topic in sorted({topic for topic, _ in broker.store.queue_keys()}):
            if broker.topics.select(topic) is None and topic not in NEVER_UNUSED and not topic.startswith(LMQ_PREFIX):
                broker.store.delete_topic(topic)
                broker.broker_stats.on_topic_deleted(topic)
                self._events.info("topics", "the queues of {topic} are deleted: the topic does not exist", topic=topic)
                deleted.append(topic)
        return deleted
