"""Locks at the brokers: the owner of a lock consumes the queue alone.

Counterpart: the locks of `RebalanceImpl` and `RebalancePushImpl` (Apache). Reactor thread.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from twisted.logger import Logger

from rocketd.client.consumer.pulling.assigned_queue import AssignedQueue
from rocketd.client.errors import RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.remoting.bodies.tables import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.wire.codes import RequestCode

LOCK_TIMEOUT_MS = 1000


class QueueLocks:
    """The locks of one consumer."""

    RENEW_SECONDS: ClassVar[float] = 20.0
    """Interval to renew locks. The broker drops a lock after 60 s."""

    log = Logger()

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def lock(self, assigned: Iterable[AssignedQueue]) -> None:
        """Ask for these queues (request code 41) and mark each as locked or not. Without an answer nothing changes."""
        for broker_name, queues in _by_broker(assigned).items():
            body = LockBatchRequestBody(self._group, self._instance.client_id, {one.queue for one in queues})
            try:
                response = await self._instance.ask_broker(
                    broker_name, RequestCode.LOCK_BATCH_MQ, body=body.encode(), timeout_ms=LOCK_TIMEOUT_MS
                )
                locked = LockBatchResponseBody.decode(response.body).lock_ok_mq_set
            except (RocketMQError, RemotingError) as error:
                self.log.warn("locking queues at {broker}: {error}", broker=broker_name, error=error)
                continue
            now_ms = int(self._instance.clock_ms())
            for one in queues:
                if one.queue in locked:
                    one.held.lock(now_ms)
                else:
                    one.held.locked = False

    async def unlock(self, assigned: Mapping[MessageQueue, AssignedQueue]) -> None:
        """Release these queues (request code 42)."""
        for broker_name, queues in _by_broker(assigned.values()).items():
            body = LockBatchRequestBody(self._group, self._instance.client_id, {one.queue for one in queues})
            for one in queues:
                one.held.locked = False
            try:
                await self._instance.ask_broker(
                    broker_name, RequestCode.UNLOCK_BATCH_MQ, body=body.encode(), timeout_ms=LOCK_TIMEOUT_MS
                )
            except RocketMQError as error:
                self.log.warn("unlocking queues at {broker}: {error}", broker=broker_name, error=error)


def _by_broker(assigned: Iterable[AssignedQueue]) -> dict[str, list[AssignedQueue]]:
    brokers: dict[str, list[AssignedQueue]] = {}
    for one in assigned:
        brokers.setdefault(one.queue.broker_name, []).append(one)
    return brokers
