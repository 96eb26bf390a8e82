"""Light queues on one store that Apache's broker and rocketd serve in turns: each continues the queues of the other."""

from pathlib import Path

import pytest

from rocketd.common.message_properties import encode_properties
from rocketd.store.format.record import decode_messages
from tests.support import wire
from tests.support.store_brokers import APACHE, ROCKETD, SMALL_FILES, StoreBrokers
from tests.support.store_wire import await_condition

LIGHT = {**SMALL_FILES, "enableLmq": "true", "enableMultiDispatch": "true", "flushConsumerOffsetInterval": "200"}
DEVICES = ["%LMQ%device-1", "%LMQ%device-2"]


@pytest.mark.parametrize("first", [APACHE, ROCKETD])
def test_light_queues_survive_changes_of_broker(namesrv: str, tmp_path: Path, first: str) -> None:
    brokers = StoreBrokers(tmp_path, namesrv, LIGHT)
    second = ROCKETD if first == APACHE else APACHE
    sent: dict[str, list[bytes]] = {device: [] for device in DEVICES}
    try:
        for turn, kind in enumerate((first, second, first)):
            brokers.start(kind)
            for device in DEVICES:
                check_offset(brokers, device, len(sent[device]))
                await_condition(f"{device} has all", lambda device=device: read(brokers, device) == sent[device])
            for number in range(4):
                send(brokers, f"{turn}.{number}".encode(), DEVICES if number % 2 else DEVICES[:1], sent)
            for device in DEVICES:
                await_condition(f"{device} has all", lambda device=device: read(brokers, device) == sent[device])
                commit(brokers, device, len(sent[device]))
            brokers.stop()
    finally:
        brokers.close()


def send(brokers: StoreBrokers, body: bytes, queues: list[str], sent: dict[str, list[bytes]]) -> None:
    properties = encode_properties({"INNER_MULTI_DISPATCH": ",".join(queues), "KEYS": "k"})
    fields = {
        "a": "P", "b": "Devices", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": properties, "j": "0", "k": "false", "l": "0", "m": "false",
    }  # fmt: skip
    answer = wire.call(brokers.address, 310, fields, body)
    assert answer.code == 0, answer
    for queue in queues:
        sent[queue].append(body)


def read(brokers: StoreBrokers, device: str) -> list[bytes]:
    """All messages of a light queue."""
    found: list[bytes] = []
    while True:
        fields = {
            "consumerGroup": device, "topic": device, "queueId": "0", "queueOffset": str(len(found)),
            "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
            "subscription": "*", "expressionType": "TAG",
        }  # fmt: skip
        answer = wire.call(brokers.address, 11, fields)
        if answer.code != 0:
            return found
        found += [message.body for message in decode_messages(answer.body)]


def commit(brokers: StoreBrokers, device: str, offset: int) -> None:
    fields = {"consumerGroup": device, "topic": device, "queueId": "0", "commitOffset": str(offset)}
    assert wire.call(brokers.address, 15, fields).code == 0


def check_offset(brokers: StoreBrokers, device: str, offset: int) -> None:
    answer = wire.call(brokers.address, 14, {"consumerGroup": device, "topic": device, "queueId": "0"})
    assert (answer.code, answer.ext_fields.get("offset")) == (0, str(offset)), answer
