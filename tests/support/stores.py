"""Stores for tests and benchmarks, written by rocketd's storage engine, so that they equal those of a broker.

`write_store` may be called again for the same directory: it appends. `read_store` reads a store record by record, as the
reference for the pipeline.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rocketd.common.java_hash import java_string_hash
from rocketd.common.sysflag import COMPRESSED, COMPRESSION_ZLIB, TRANSACTION_PREPARED
from rocketd.store.base.layout import BLANK_MAGIC, END_OF_FILE_BLANK, commit_log_dir, is_mapped_file_name
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.format.message import MessageInner, PutResult, PutStatus
from rocketd.store.format.properties import dispatch_properties
from rocketd.store.format.record import MessageExt, decode_message
from rocketd.store.message_store import MessageStore

BORN_V4 = bytes((10, 1, 2, 3)) + (40123).to_bytes(4, "big")
BORN_V6 = bytes.fromhex("20010db8000000000000000000000017") + (40123).to_bytes(4, "big")
STORE_V4 = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
STORE_V6 = bytes.fromhex("20010db8000000000000000000000001") + (10911).to_bytes(4, "big")

START_MS = 1_700_000_000_000
TAGS = ("TagA", "TagB", "TagC", "")
"""Tags of `messages`, in turn; the last one stands for no tag."""

_POOL = random.Random(4711).randbytes(1 << 20)


def message(
    body: bytes = b"body",
    topic: str = "orders",
    queue_id: int = 0,
    *,
    tags: str = "",
    keys: str = "",
    uniq_key: str = "",
    properties: Mapping[str, str] | bytes | None = None,
    born_ms: int = START_MS - 5,
    born_host: bytes = BORN_V4,
    compress: bool = False,
    sys_flag: int = 0,
    flag: int = 0,
    reconsume_times: int = 0,
) -> MessageInner:
    """One message. `properties` are further ones; bytes are the whole property string, taken as they are."""
    if isinstance(properties, bytes):
        encoded = properties
    else:
        named = {"KEYS": keys, "UNIQ_KEY": uniq_key, **(properties or {}), "TAGS": tags}
        encoded = "\x02".join(f"{name}\x01{value}" for name, value in named.items() if value).encode()
    if compress:
        body, sys_flag = zlib.compress(body), sys_flag | COMPRESSED | COMPRESSION_ZLIB
    tags_code, index_keys = dispatch_properties(encoded)
    return MessageInner(
        topic=topic,
        queue_id=queue_id,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born_ms,
        born_host=born_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=0,
        body=body,
        properties=encoded,
        tags_code=tags_code,
        index_keys=index_keys,
    )


def messages(
    count: int, topic: str = "orders", queues: int = 4, body_size: int = 200, *, first: int = 0, variants: bool = False
) -> Iterator[MessageInner]:
    """Numbered messages, spread over the queues in turn: body ``<number>|<random bytes>``, a tag of `TAGS`, a key, a
    unique key and a further property.

    With `variants`, some have IPv6 hosts, compressed, empty or long bodies, no properties, or names not in ASCII.
    """
    codes = [java_string_hash(tag) for tag in TAGS]
    unique = "7F00000100002A139A6D"
    for number in range(first, first + count):
        queue_id = number % queues
        born_ms = START_MS - 5 + number
        if variants and number % 10 >= 4:
            yield _variant(number, topic, queue_id, body_size, born_ms)
            continue
        kind = (number // queues) % len(TAGS)
        key, unique_key, tag = f"key-{number}", f"{unique}{number:012X}", TAGS[kind]
        text = f"KEYS\x01{key}\x02UNIQ_KEY\x01{unique_key}\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster"
        yield MessageInner(
            topic=topic,
            queue_id=queue_id,
            flag=0,
            sys_flag=0,
            born_timestamp=born_ms,
            born_host=BORN_V4,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=_body(number, body_size),
            properties=(f"{text}\x02TAGS\x01{tag}" if tag else text).encode(),
            tags_code=codes[kind],
            index_keys=(unique_key, key),
        )


def _body(number: int, size: int) -> bytes:
    head = b"%d|" % number
    at = number * 7919 % (len(_POOL) - size)
    return head + _POOL[at : at + max(0, size - len(head))]


def _variant(number: int, topic: str, queue_id: int, body_size: int, born_ms: int) -> MessageInner:
    given: dict[str, Any] = {"topic": topic, "queue_id": queue_id, "born_ms": born_ms}
    match number % 10:
        case 4:
            return message(_body(number, body_size), born_host=BORN_V6, tags="TagA", keys=f"key-{number}", **given)
        case 5:
            return message(_body(number, body_size) * 5, compress=True, tags="TagB", **given)
        case 6:
            return message(b"", tags="TagC", uniq_key=f"{number:032X}", **given)
        case 7:
            return message(_body(number, body_size), properties=b"", **given)
        case 8:
            return message(
                _body(number, body_size), tags="Grüße", properties={"größe": "übel", "a": str(number % 100)}, **given
            )
        case _:
            return message(_body(number, body_size + 20_000), tags="TagA", flag=number, reconsume_times=3, **given)


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of one call of `write_store`. `results` are in the order of the messages."""

    root: str
    results: list[PutResult]

    def counts(self) -> int:
        """How many messages were stored."""
        return len(self.results)


def write_store(
    root: str | os.PathLike[str],
    what: int | Iterable[MessageInner] = 1000,
    *,
    topic: str = "orders",
    queues: int = 4,
    body_size: int = 200,
    variants: bool = False,
    log_file_size: int = 1 << 20,
    queue_file_size: int = 20 * 1000,
    start_ms: int = START_MS,
    step_ms: int = 1,
    group: int = 100,
    store_host: bytes = STORE_V4,
    commit_log: str = "",
    index: bool = False,
    **settings: Any,
) -> Written:
    """Write messages, or so many of `messages`, with the storage engine and stop it cleanly.

    `group` messages go into one write and have one store time, which then moves on by `step_ms` for each of them.
    `settings` are further ones of MessageStoreConfig. About 100,000 messages a second.
    """
    root = os.fspath(root)
    source = messages(what, topic, queues, body_size, variants=variants) if isinstance(what, int) else iter(what)
    now = [start_ms / 1000]
    config = MessageStoreConfig(
        store_path_root_dir=root,
        store_path_commit_log=commit_log or commit_log_dir(root),
        mapped_file_size_commit_log=log_file_size,
        mapped_file_size_consume_queue=queue_file_size,
        message_index_enable=index,
        disk_space_warning_level_ratio=1.0,
        disk_space_clean_forcibly_ratio=1.0,
        **{"max_hash_slot_num": 10_000, "max_index_num": 40_000, **settings},
    )
    store = MessageStore(config, store_host, clock=lambda: now[0])
    store.start()
    results: list[PutResult] = []
    try:
        written = 0
        while some := list(islice(source, group)):
            put = store.put_messages(some)
            wrong = [result for result in put if result.status is not PutStatus.PUT_OK]
            assert not wrong, wrong[0]
            results += put
            written += len(put)
            now[0] = (start_ms + written * step_ms) / 1000 + 0.0001
        _wait_dispatched(store)
    finally:
        store.stop()
    return Written(root, results)


def _wait_dispatched(store: MessageStore) -> None:
    deadline = time.monotonic() + 120
    pause = threading.Event()
    while store.dispatch_behind_bytes():
        assert time.monotonic() < deadline, "the store did not dispatch all its messages"
        pause.wait(0.002)


def read_store(root: str | os.PathLike[str], commit_log: str = "", prepared: bool = False) -> Iterator[MessageExt]:
    """All messages of the log that have a queue entry, in the order of the log, decoded one by one; with `prepared`, half
    and rolled back ones too.
    """
    for path in log_files(root, commit_log):
        data = path.read_bytes()
        position = 0
        while position + END_OF_FILE_BLANK <= len(data):
            size = int.from_bytes(data[position : position + 4], "big", signed=True)
            magic = int.from_bytes(data[position + 4 : position + 8], "big", signed=True)
            if size <= 0 or magic == BLANK_MAGIC:
                break
            found = decode_message(data, position)
            if prepared or not found.sys_flag & TRANSACTION_PREPARED:
                yield found
            position += size


def log_files(root: str | os.PathLike[str], commit_log: str = "") -> list[Path]:
    """The files of the commit log, in order."""
    directory = Path(commit_log or commit_log_dir(os.fspath(root)))
    return sorted(path for path in directory.iterdir() if is_mapped_file_name(path.name))


def record_bytes(root: str | os.PathLike[str], physical_offset: int, size: int, commit_log: str = "") -> bytes:
    """The bytes of the log from an offset on."""
    path = [one for one in log_files(root, commit_log) if int(one.name) <= physical_offset][-1]
    with path.open("rb") as file:
        file.seek(physical_offset - int(path.name))
        return file.read(size)


def write_group_offsets(root: str | os.PathLike[str], offsets: Mapping[tuple[str, str], Mapping[int, int]]) -> None:
    """Write config/consumerOffset.json as Apache's broker does: ``{(topic, group): {queue id: offset}}``."""
    lines = [
        f"{json.dumps(f'{topic}@{group}')}:{{{','.join(f'{queue}:{offset}' for queue, offset in queues.items())}}}"
        for (topic, group), queues in offsets.items()
    ]
    directory = Path(os.fspath(root), "config")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "consumerOffset.json").write_text('{"offsetTable":{' + ",".join(lines) + "}}")
