"""Cleaning up on request: queues without messages 306, what belongs to no topic 316, expired log files 329.

Answers to that part of Apache's AdminBrokerProcessor. An answer means that the deletion has been asked for: log files are
deleted in the store's own rounds, as there, queues behind what is being dispatched to them.
"""

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger
from zope.interface import implementer

from rocketd.common.names import LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_OP_HALF_TOPIC
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.interfaces import IRequestProcessor

CODES = (
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
)

NEVER_UNUSED = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_OP_HALF_TOPIC))
"""Topics whose queues stay, even if they are not configured."""


@implementer(IRequestProcessor)
class CleanUpProcessor:
    """Deletes what has no use any more. ``process`` belongs to the storage thread, as what is deleted does."""

    _log = Logger()

    def __init__(self, broker: Any) -> None:
        """``broker`` is an IBroker."""
        self._broker = broker
        self._methods: dict[int, Callable[[], None]] = {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_expired_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: broker.store.execute_delete_files_manually,
        }

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        self._log.info(
            "{address} asks for {what}", address=context.connection.address, what=RequestCode(request.code).name
        )
        try:
            self._methods[request.code]()
        except OSError as error:
            self._log.failure("{what} failed", what=RequestCode(request.code).name)
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, str(error))
        return RemotingCommand.response()

    def _clean_expired_queues(self) -> None:
        for topic, queue_id in self._broker.store.delete_expired_queues():
            # Its next message gets offset 0 again: whoever went on at an old offset would pass over new messages.
            self._broker.offsets.remove_queue(topic, queue_id)
            self._log.info("queue {queue} of {topic} is deleted: it had no messages", queue=queue_id, topic=topic)

    def _clean_unused_topics(self) -> None:
        broker = self._broker
        for topic in sorted({topic for topic, _ in broker.store.queue_keys()}):
            if broker.topics.select(topic) is None and topic not in NEVER_UNUSED and not topic.startswith(LMQ_PREFIX):
                broker.store.delete_topic(topic)
                broker.broker_stats.on_topic_deleted(topic)
                self._log.info("the queues of {topic} are deleted: there is no such topic", topic=topic)
