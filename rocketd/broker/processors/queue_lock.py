"""Locks of queues for ordered consumption: 41, 42.

Answers to the lock part of Apache's AdminBrokerProcessor.
"""

from typing import Any

from zope.interface import implementer

from rocketd.remoting.bodies import LockBatchRequestBody, LockBatchResponseBody
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.interfaces import IRequestProcessor

CODES = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)


@implementer(IRequestProcessor)
class QueueLockProcessor:
    """Locks and unlocks. ``process`` may run in several threads at once."""

    def __init__(self, broker: Any) -> None:
        """``broker`` is an IBroker."""
        self._locks = broker.locks

    def process(self, request: RemotingCommand, context: Any) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        body = LockBatchRequestBody.decode(request.body)
        if request.code == RequestCode.UNLOCK_BATCH_MQ:
            self._locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
            return RemotingCommand.response()
        locked = self._locks.lock_batch(body.consumer_group, body.mq_set, body.client_id)
        return RemotingCommand.response(body=LockBatchResponseBody(set(locked)).encode())
