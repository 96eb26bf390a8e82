"""Appends to a stopped store through rocketd's storage engine itself, with hosts that no connection here could have."""

import base64
from pathlib import Path

from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import MessageInner, PutStatus
from rocketd.store.message_store import MessageStore
from tests.support.store_brokers import SMALL_FILES
from tests.support.store_directory import java_hash

IPV4_HOST = bytes((127, 0, 0, 1))
IPV6_HOST = bytes(15) + b"\x01"
_BORN_PORT = 4321
_TAG = "Tag1"


def append_ipv6(store: Path, port: int, topic: str, first_index: int, count: int) -> list[dict]:
    """Append ``count`` messages each of a sender and to a broker with IPv4 and IPv6 addresses, in all four combinations.

    Returns for each the same fields as ``fill`` of the Java program prints. ``port`` is that of the broker.
    """
    lines: list[dict] = []
    for store_address in (IPV4_HOST, IPV6_HOST):
        store_host = store_address + port.to_bytes(4, "big")
        opened = MessageStore(_config(store), store_host)
        opened.start()
        try:
            for born_address in (IPV4_HOST, IPV6_HOST):
                messages = [
                    _message(topic, first_index + len(lines) + n, born_address + _BORN_PORT.to_bytes(4, "big"))
                    for n in range(count)
                ]
                for message, result in zip(messages, opened.put_messages(messages), strict=True):
                    assert result.status is PutStatus.PUT_OK, result
                    index = message.flag
                    offset_id = store_host + result.physical_offset.to_bytes(8, "big")
                    lines.append(
                        {
                            "kind": "append",
                            "index": index,
                            "topic": topic,
                            "flag": index,
                            "tags": _TAG,
                            "keys": f"key-{index} shared-{index % 20}",
                            "body": base64.b64encode(message.body).decode(),
                            "msgId": f"{index:032X}",
                            "offsetMsgId": offset_id.hex().upper(),
                            "queueId": message.queue_id,
                            "queueOffset": result.queue_offset,
                        }
                    )
        finally:
            opened.stop()
    return lines


def _message(topic: str, index: int, born_host: bytes) -> MessageInner:
    unique, keys = f"{index:032X}", (f"key-{index}", f"shared-{index % 20}")
    properties = {"UNIQ_KEY": unique, "TAGS": _TAG, "KEYS": " ".join(keys), "index": str(index)}
    return MessageInner(
        topic=topic,
        queue_id=index % 2,
        flag=index,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        born_host=born_host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"appended " * (1 + index % 100),
        properties="\x02".join(f"{name}\x01{value}" for name, value in properties.items()).encode(),
        tags_code=java_hash(_TAG),
        index_keys=(unique, *keys),
    )


def _config(store: Path) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(store),
        mapped_file_size_commit_log=int(SMALL_FILES["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(SMALL_FILES["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(SMALL_FILES["maxHashSlotNum"]),
        max_index_num=int(SMALL_FILES["maxIndexNum"]),
        disk_space_warning_level_ratio=1.0,
    )
