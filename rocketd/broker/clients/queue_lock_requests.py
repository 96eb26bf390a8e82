"""Queue locks for ordered consumption: 41, 42.

Counterpart: the lock part of `AdminBrokerProcessor` (Apache).
"""

from zope.interface import implementer

from rocketd.broker.base import problems
from rocketd.broker.clients.parts import ClientParts
from rocketd.remoting.bodies.tables import LockBatchRequestBody, LockBatchResponseBody
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand


@implementer(IRequestProcessor)
class QueueLockProcessor:
    """Locks and unlocks queues. ``process`` may run in several threads at once."""

    def __init__(self, broker: ClientParts) -> None:
        self._broker = broker
        self._locks = broker.locks

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        body = LockBatchRequestBody.decode(request.body)
        limit = self._broker.settings.broker.max_queues_per_lock_request
        if limit and len(body.mq_set) > limit:
            raise problems.TOO_MANY_QUEUES_LOCKED.error(count=len(body.mq_set), limit=limit)
        if request.code == RequestCode.UNLOCK_BATCH_MQ:
            self._locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
            return RemotingCommand.response()
        group, topics = body.consumer_group, self._broker.topics
        known = {queue for queue in body.mq_set if topics.has_queue(queue.topic, queue.queue_id)}
        if not self._is_known(group):
            known = set()
        locked = self._locks.lock_batch(group, known, body.client_id)
        locked += self._locks.lock_batch(group, body.mq_set - known, body.client_id, known=False)
        return RemotingCommand.response(body=LockBatchResponseBody(set(locked)).encode())

    def _is_known(self, group: str) -> bool:
        """Whether the group may have consumers: a heartbeat or a pull comes before the first lock."""
        broker = self._broker
        return broker.groups.get(group) is not None or broker.consumers.find(group) is not None
