"""Reads a broker's messages, to the byte, over the plain socket of tests.support.wire, without rocketd's codec."""

import json
import time

from tests.support import wire
from tests.support.store_directory import split_records

PULL_MESSAGE = 11
GET_RUNTIME_INFO = 28
GET_MAX_OFFSET = 30
VIEW_MESSAGE_BY_ID = 33
UPDATE_AND_CREATE_SUBSCRIPTION_GROUP = 200
PULL_RETRY_IMMEDIATELY = 20

_HAS_SUBSCRIPTION = 4
_POLL_SECONDS = 0.1


def pull_records(broker: str, topic: str, queue_id: int) -> list[bytes]:
    """Every record of a queue, as it lies in the log."""
    records: list[bytes] = []
    offset = 0
    while True:
        answer = wire.call(
            broker,
            PULL_MESSAGE,
            {
                "consumerGroup": "audit",
                "topic": topic,
                "queueId": str(queue_id),
                "queueOffset": str(offset),
                "maxMsgNums": "32",
                "sysFlag": str(_HAS_SUBSCRIPTION),
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subscription": "*",
                "subVersion": "0",
                "expressionType": "TAG",
            },
        )
        if answer.code not in (wire.SUCCESS, PULL_RETRY_IMMEDIATELY):
            assert answer.ext_fields.get("maxOffset") == str(len(records)), (topic, queue_id, answer)
            return records
        records.extend(split_records(answer.body))
        offset = int(answer.ext_fields["nextBeginOffset"])


def max_offset(broker: str, topic: str, queue_id: int) -> int:
    """The queue offset behind the last message."""
    answer = wire.call(broker, GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
    assert answer.code == wire.SUCCESS, answer
    return int(answer.ext_fields["offset"])


def view_record(broker: str, physical_offset: int) -> bytes:
    """The record at an offset of the log."""
    answer = wire.call(broker, VIEW_MESSAGE_BY_ID, {"offset": str(physical_offset)})
    assert answer.code == wire.SUCCESS, answer
    return answer.body


def create_group(broker: str, group: str, retry_max_times: int) -> None:
    """Create (or change) a consumer group."""
    body = (
        f'{{"groupName":"{group}","consumeEnable":true,"consumeFromMinEnable":true,"consumeBroadcastEnable":false,'
        f'"retryQueueNums":1,"retryMaxTimes":{retry_max_times},"brokerId":0,"whichBrokerWhenConsumeSlowly":1,'
        f'"notifyConsumerIdsChangedEnable":true}}'
    )
    answer = wire.call(broker, UPDATE_AND_CREATE_SUBSCRIPTION_GROUP, body=body.encode())
    assert answer.code == wire.SUCCESS, answer


def await_dispatched(broker: str) -> None:
    """Return once queues and index have all messages of the broker's log: brokers answer sends before they have."""

    def dispatched() -> bool:
        answer = wire.call(broker, GET_RUNTIME_INFO)
        # In its first second, before it has taken a sample of itself, Apache's broker fails.
        return answer.code == wire.SUCCESS and json.loads(answer.body)["table"]["dispatchBehindBytes"] == "0"

    await_condition("all is in queues and index", dispatched)


def await_condition(what: str, condition, limit: float = 120.0) -> None:
    """Return once it holds; AssertionError after ``limit`` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit:g} s in vain: {what}"
        time.sleep(_POLL_SECONDS)
