"""Locks at the brokers: who has one consumes the queue alone.

Answers to the locks of RebalanceImpl and RebalancePushImpl. Reactor thread.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from twisted.logger import Logger

from rocketd.client.consumer.pulled import AssignedQueue
from rocketd.client.errors import RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.remoting.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.errors import RemotingError

LOCK_TIMEOUT_MS = 1000


class QueueLocks:
    """The locks of one consumer."""

    RENEW_SECONDS: ClassVar[float] = 20.0
    """How often locks are asked for anew; the broker lets one go after 60 s."""

    log = Logger()

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def lock(self, assigned: Iterable[AssignedQueue]) -> None:
        """Ask for these queues (41); each knows then whether it is locked. A broker that does not answer changes nothing."""
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
        """Let these queues go (42)."""
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
