"""A store that was damaged and that ``rocketd store repair`` mended: Apache's broker opens it, serves all that was kept,
finds it by key, takes more, and leaves a store without damage.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter

import pytest

import rocketd
from tests.interop.store_checks import check_log, tags_code
from tests.support import wire
from tests.support.store_brokers import APACHE, ROCKETD, SMALL_FILES, StoreBrokers
from tests.support.store_directory import Record, queues_of, read_log, read_queues, split_records
from tests.support.store_wire import await_condition, max_offset, pull_records

QUEUES = {"Orders": 3, "Payments": 2, "Letters": 1}
MESSAGES = 400
MORE = 30
SHARED_BY = 20  # messages with one key
TAGS = ("TagA", "TagB")
DAMAGED_TAG = "ROCKETD_DAMAGED"

SEND_MESSAGE_V2 = 310
QUERY_MESSAGE = 12
NOT_FOUND = 22
ENTRY = 20  # bytes
_FOREVER = str(1 << 62)
_SOURCES = os.path.dirname(os.path.dirname(rocketd.__file__))


@pytest.fixture
def brokers(namesrv, tmp_path):
    brokers = StoreBrokers(tmp_path / "brokers", namesrv)
    yield brokers
    brokers.close()


# ---------------------------------------------------------------- written stores


def body_of(number):
    return random.Random(number).randbytes(1 + number * 37 % 900)


def keys_of(number):
    return f"key-{number}", f"shared-{number % SHARED_BY}"


def send(brokers, numbers):
    """Send messages round the queues of all topics, each answered with success."""
    places = [(topic, queue) for topic, queues in QUEUES.items() for queue in range(queues)]
    for number in numbers:
        topic, queue_id = places[number % len(places)]
        properties = {
            "UNIQ_KEY": f"unique-{number}",
            "KEYS": " ".join(keys_of(number)),
            "TAGS": TAGS[number % len(TAGS)],
            "number": str(number),
        }
        fields = {
            "a": "writers", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1700000000000",
            "h": str(number), "i": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
            "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        answer = wire.call(brokers.address, SEND_MESSAGE_V2, fields, body_of(number))
        assert answer.code == wire.SUCCESS, answer


def write(brokers, kind):
    """Have a broker of this kind write the store, and end it; returns the records."""
    brokers.start(kind)
    for topic, queues in QUEUES.items():
        wire.create_topic(brokers.address, topic, queues)
    send(brokers, range(MESSAGES))
    brokers.stop()
    records = read_log(brokers.store)
    assert len(records) == MESSAGES
    return records


# ---------------------------------------------------------------- damage


def overwrite(path, position, data):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def overwrite_log(store, offset, data):
    size = int(SMALL_FILES["mappedFileSizeCommitLog"])
    overwrite(store / "commitlog" / f"{offset // size * size:020d}", offset % size, data)


def zero_records(store, records):
    """Three records next to each other, of three queues, in the middle of a file."""
    lost = next(three for at in range(130, 200) if _adjoin(three := records[at : at + 3]))
    overwrite_log(store, lost[0].physical_offset, bytes(sum(len(record.raw) for record in lost)))
    return lost


def _adjoin(records):
    ends = [record.physical_offset + len(record.raw) for record in records]
    return ends[:-1] == [record.physical_offset for record in records[1:]]


def flip_a_bit(store, records):
    """In the body of the tenth message from the end, which is in the last file."""
    record = records[-10]
    position = record.raw.index(record.body) + len(record.body) // 2
    overwrite_log(store, record.physical_offset + position, bytes((record.raw[position] ^ 0x10,)))
    return [record]


def spoil_a_magic(store, records):
    """The second word of one record."""
    overwrite_log(store, records[60].physical_offset + 4, b"\0")
    return [records[60]]


def break_entries(store, records):
    """Two entries of one queue lead nowhere, the first file of another is nothing but zeros."""
    overwrite(store / "consumequeue" / "Orders" / "1" / f"{0:020d}", 7 * ENTRY, b"\x11" * (2 * ENTRY))
    file = store / "consumequeue" / "Payments" / "0" / f"{0:020d}"
    overwrite(file, 0, bytes(file.stat().st_size))
    return []


def cut_the_index(store, records):
    """The first file ends in the middle."""
    file = sorted((store / "index").iterdir())[0]
    os.truncate(file, file.stat().st_size // 2)
    return []


DAMAGES = (zero_records, flip_a_bit, spoil_a_magic, break_entries, cut_the_index)


# ---------------------------------------------------------------- the tool


def store_tool(brokers, *arguments):
    """Run ``rocketd store`` on the store with the settings that its brokers had; returns exit status and findings."""
    config = brokers.directory / "store.conf"
    config.write_text("".join(f"{name}={value}\n" for name, value in SMALL_FILES.items()))
    command = [sys.executable, "-m", "rocketd", "store", *arguments, "--json", "--config", config, brokers.store]
    path = os.pathsep.join(filter(None, (_SOURCES, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": path})
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def repair(brokers, records, lost):
    """Mend the store, and return its records: those that were not damaged, and placeholders in the others' places."""
    status, found = store_tool(brokers, "repair", "--write", "--index", "--replace-damaged")
    assert (status, found["damaged"], found["findings"]) == (0, False, []), found
    mended = read_log(brokers.store)
    check_log(mended)
    assert found["records"] == len(mended)
    places = {record.physical_offset for record in lost}
    kept = [record for record in records if record.physical_offset not in places]
    assert [r for r in mended if r.properties.get("TAGS") != DAMAGED_TAG and r.topic in QUEUES] == kept
    return mended


# ---------------------------------------------------------------- Apache's broker on the repaired store


def query(broker, topic, key):
    """The records that have a key, in the order of the log."""
    fields = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": _FOREVER}
    answer = wire.call(broker, QUERY_MESSAGE, fields)
    assert answer.code in (wire.SUCCESS, NOT_FOUND), answer
    found = [Record(int.from_bytes(raw[28:36], "big"), raw) for raw in split_records(answer.body)]
    return sorted(found, key=lambda record: record.physical_offset)


def check_served(broker, records):
    """Every queue is as long as the log says, and serves the log's records to the byte."""
    served = {queue: messages for queue, messages in queues_of(records).items() if queue[0] in QUEUES}
    assert {queue: max_offset(broker, *queue) for queue in served} == {
        queue: len(messages) for queue, messages in served.items()
    }
    for queue, messages in served.items():
        assert pull_records(broker, *queue) == [record.raw for record in messages], queue


def check_queries(broker, records):
    """Each key finds all messages that have it, once, and nothing else."""
    keyed = {}
    for record in records:
        if record.topic in QUEUES:
            for key in record.index_keys:
                keyed.setdefault((record.topic, key), []).append(record)
    assert len(keyed) > 2 * (MESSAGES - 10)
    for (topic, key), wanted in keyed.items():
        assert query(broker, topic, key) == wanted, (topic, key)


@pytest.mark.parametrize("writer", [ROCKETD, APACHE])
def test_apache_continues_a_repaired_store(brokers, writer):
    records = write(brokers, writer)
    lost = [record for damage in DAMAGES for record in damage(brokers.store, records)]
    assert len({record.physical_offset for record in lost}) == 5
    status, found = store_tool(brokers, "verify")
    assert status == 1
    assert len(found["findings"]) >= len(DAMAGES)
    mended = repair(brokers, records, lost)

    brokers.start(APACHE)
    check_served(brokers.address, mended)
    check_queries(brokers.address, mended)
    for record in lost:
        assert query(brokers.address, record.topic, record.properties["UNIQ_KEY"]) == []
    send(brokers, range(MESSAGES, MESSAGES + MORE))
    all_of_them = len([record for record in mended if record.topic in QUEUES]) + MORE
    places = [(topic, queue) for topic, queues in QUEUES.items() for queue in range(queues)]
    await_condition(
        "all messages are visible",
        lambda: sum(max_offset(brokers.address, *place) for place in places) == all_of_them,
    )
    brokers.stop()

    after = read_log(brokers.store)
    check_log(after)
    assert after[: len(mended)] == mended
    sent = Counter(record.properties.get("number") for record in after[len(mended) :])
    assert sent == Counter(str(number) for number in range(MESSAGES, MESSAGES + MORE))
    queues = read_queues(brokers.store)
    for queue, messages in queues_of(after).items():
        if queue[0] in QUEUES:
            assert queues[queue] == [(m.physical_offset, len(m.raw), tags_code(m, [])) for m in messages], queue
    status, found = store_tool(brokers, "verify")
    assert (status, found["findings"]) == (0, []), found
    assert found["records"] == len(after)

    brokers.start(ROCKETD)
    check_served(brokers.address, after)
    check_queries(brokers.address, after)
    brokers.stop()
