"""Transactions of unmodified Java and Go producers: committed messages arrive, no others do.

The broker checks its half messages every second here, and is killed in between. A producer that answers more slowly than
that is asked again, and a message committed twice comes twice.
"""

import json
import subprocess
from collections import Counter
from contextlib import contextmanager

import pytest

from tests.interop.toolchain import PROGRAMS, run_client
from tests.support import wire
from tests.support.store_brokers import APACHE, ROCKETD, SMALL_FILES, StoreBrokers
from tests.support.store_directory import read_log
from tests.support.store_wire import await_condition, max_offset, pull_records

TOPIC = "T-tx"
HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COUNT = 9  # a third is committed, a third rolled back, a third left undecided
CHECKS = 3
QUICK = {
    **SMALL_FILES,
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "3000",
    "transactionCheckMax": str(CHECKS),
}
SELDOM = {**QUICK, "transactionCheckInterval": "3600000", "transactionCheckMax": "1000"}
# Producers are not checked before ``begin_checks``, however long ends take on a machine that hangs.
LATER = {**QUICK, "transactionTimeOut": "3600000"}
UPDATE_BROKER_CONFIG = 25
RESUME_CHECK_HALF_MESSAGE = 323
END_PROPERTIES = b"\0\x10WAIT\x01true\x02TAGS\x01d"
LIMIT = 60.0  # seconds


@pytest.fixture
def brokers(namesrv, tmp_path_factory):
    brokers = StoreBrokers(tmp_path_factory.mktemp("brokers"), namesrv, QUICK)
    yield brokers
    brokers.close()


def start(brokers, kind=ROCKETD, properties=QUICK):
    brokers.start(kind, **properties)
    wire.create_topic(brokers.address, TOPIC, 2)
    wire.await_route(brokers.namesrv, TOPIC, brokers.address)


@pytest.fixture
def java(brokers, tmp_path_factory):
    """``java(command, ...)``: the output of the Java program."""

    def run(command, *arguments):
        home = tmp_path_factory.mktemp("java")
        given = ("--namesrv", brokers.namesrv, "--topic", TOPIC, *arguments)
        return run_client("java", command, *given, home=home, jvm=("-Xmx256m",)).lines

    return run


class GoProducer:
    """The Go program while it answers checks."""

    def __init__(self, namesrv, home, *arguments):
        command = PROGRAMS["go"].command(PROGRAMS["go"].built(), home, ())
        given = ("transact", "--namesrv", namesrv, "--topic", TOPIC, "--group", "go", *map(str, arguments))
        self._printed = home / "printed"
        with self._printed.open("wb") as output:
            self._process = subprocess.Popen([*command, *given], cwd=home, stdin=subprocess.PIPE, stdout=output)

    @property
    def lines(self):
        return [json.loads(line) for line in self._printed.read_text().splitlines(keepends=True) if line[-1] == "\n"]

    def checks(self):
        """How often it was asked about which message."""
        return Counter(line["index"] for line in self.lines if line["check"])

    def end(self):
        self._process.stdin.close()
        assert self._process.wait(LIMIT) == 0

    def kill(self):
        self._process.kill()
        self._process.wait()


@pytest.fixture
def go(brokers, tmp_path_factory, lacking):
    """``with go(...) as producer``: the Go program, ended politely unless the test fails."""
    reason = PROGRAMS["go"].missing()
    if reason is not None:
        lacking(reason)

    @contextmanager
    def run(*arguments):
        producer = GoProducer(brokers.namesrv, tmp_path_factory.mktemp("go"), *arguments)
        try:
            yield producer
            producer.end()
        finally:
            producer.kill()

    return run


def stored(brokers):
    """Numbers of the messages that consumers see in the topic, as often as they are there."""
    records = [record for queue in (0, 1) for record in pull_records(brokers.address, TOPIC, queue)]
    return Counter(index_of(record) for record in records)


def index_of(record):
    _, _, rest = record.partition(b"index\x01")
    return int(rest.partition(b"\x02")[0])


def half_messages(brokers):
    return max_offset(brokers.address, HALF, 0)


def begin_checks(brokers, ends):
    """Have the broker, started with LATER, check the open transactions, once so many have ended."""
    await_condition("decided transactions have ended", lambda: max_offset(brokers.address, OP, 0) == ends)
    text = f"transactionTimeOut={QUICK['transactionTimeOut']}\n"
    assert wire.call(brokers.address, UPDATE_BROKER_CONFIG, body=text.encode()).code == wire.SUCCESS


def once(indexes):
    return Counter(dict.fromkeys(indexes, 1))


COMMITTED, UNDECIDED = range(0, COUNT, 3), range(2, COUNT, 3)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_java_with_a_restart_before_the_checks(brokers, java, end):
    start(brokers, properties=SELDOM)
    sent = java("transact", "--group", "java", "--first", 0, "--count", COUNT)
    assert [line["state"] for line in sent] == ["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"] * (COUNT // 3)
    await_condition("committed messages are there", lambda: stored(brokers) == once(COMMITTED))
    getattr(brokers, end)()
    brokers.start(ROCKETD, **{**QUICK, "transactionCheckMax": "1000"})
    assert stored(brokers) == once(COMMITTED)
    asked = java("transact", "--group", "java", "--check", "--count", len(COMMITTED) + len(UNDECIDED))
    assert {line["index"] for line in asked} == set(UNDECIDED)
    assert stored(brokers).keys() == {*COMMITTED, *UNDECIDED}

    received = java("consume", "--group", "readers", "--count", 2 * COUNT // 3, "--timeout", 120)
    assert {line["index"] for line in received} == {*COMMITTED, *UNDECIDED}
    for line in received:
        assert (line["body"], line["tags"], line["keys"]) == (
            f"within {line['index']}",
            "TagT",
            f"key-{line['index']}",
        )
    brokers.stop()


def test_go_producer_is_checked_by_restarted_broker(brokers, go, java):
    start(brokers, properties=SELDOM)
    with go("--count", COUNT) as producer:
        await_condition("all is sent", lambda: len(producer.lines) == COUNT)
        await_condition("committed messages are there", lambda: stored(brokers) == once(COMMITTED))
        brokers.kill()
        brokers.start(ROCKETD, **{**QUICK, "transactionCheckMax": "1000"})
        # Go's producers say every 30 s that they are there.
        await_condition("the rest is committed", lambda: stored(brokers).keys() == {*COMMITTED, *UNDECIDED})
        assert producer.checks().keys() == {str(index) for index in UNDECIDED}
    received = java("consume", "--group", "readers", "--count", 2 * COUNT // 3, "--timeout", 120)
    assert {line["index"] for line in received} == {*COMMITTED, *UNDECIDED}
    brokers.stop()


def test_go_rolls_back_on_check(brokers, go):
    start(brokers, properties=LATER)
    with go("--count", COUNT, "--answer", "rollback") as producer:
        await_condition("all is sent", lambda: len(producer.lines) >= COUNT)
        begin_checks(brokers, COUNT - len(UNDECIDED))
        await_condition("all is asked", lambda: producer.checks().keys() == {str(index) for index in UNDECIDED})
        await_condition("all has ended", lambda: max_offset(brokers.address, OP, 0) >= COUNT)
    assert stored(brokers) == once(COMMITTED)
    brokers.stop()


def test_undecided_transaction_is_checked_n_times_and_set_aside(brokers, go):
    start(brokers)
    with go("--count", 3, "--states", "unknown", "--answer", "unknown") as producer:
        await_condition("all is given up", lambda: max_offset(brokers.address, GIVEN_UP, 0) == 3)
        asked = Counter({"0": CHECKS, "1": CHECKS, "2": CHECKS})
        await_condition("all checks have come", lambda: producer.checks() == asked)
        assert half_messages(brokers) == 3 * (1 + CHECKS)
        kept = pull_records(brokers.address, GIVEN_UP, 0)
        assert [index_of(record) for record in kept] == [0, 1, 2]
        # An administrator has one checked again.
        (record,) = [r for r in read_log(brokers.store) if r.topic == GIVEN_UP and r.properties["index"] == "1"]
        answer = wire.call(brokers.address, RESUME_CHECK_HALF_MESSAGE, {"msgId": record.offset_msg_id})
        assert answer.code == wire.SUCCESS
        await_condition("it is given up again", lambda: max_offset(brokers.address, GIVEN_UP, 0) == 4)
        asked["1"] *= 2
        await_condition("it is asked about again", lambda: producer.checks() == asked)
    assert stored(brokers) == Counter()
    brokers.stop()


@pytest.mark.parametrize(
    ("first", "end", "second"),
    [(APACHE, "kill", ROCKETD), (ROCKETD, "stop", APACHE)],
    ids=["apache-killed", "rocketd-stopped"],
)
def test_other_broker_continues_transactions(brokers, java, first, end, second):
    start(brokers, first, SELDOM)
    java("transact", "--group", "java", "--first", 0, "--count", COUNT)
    await_condition("committed messages are there", lambda: stored(brokers) == once(COMMITTED))
    getattr(brokers, end)()
    brokers.start(second, **{**QUICK, "transactionCheckMax": "1000"})
    asked = java("transact", "--group", "java", "--check", "--count", len(COMMITTED) + len(UNDECIDED))
    assert {line["index"] for line in asked} == set(UNDECIDED)
    assert stored(brokers).keys() == {*COMMITTED, *UNDECIDED}
    brokers.stop()


def shape(store):
    """Return the records of transactions, by topic, without times, places, and the order of one-way requests."""
    seen = {HALF: [], OP: [], TOPIC: [], GIVEN_UP: []}
    halves = {}
    for record in read_log(store):
        if record.topic not in seen:
            continue
        if record.topic == HALF:
            halves[record.physical_offset] = record.queue_offset
        properties = {**record.properties, "UNIQ_KEY": "", "REAL_QID": ""}
        seen[record.topic].append(
            {
                "body": record.body,
                "flag": record.flag,
                "sysFlag": record.sys_flag,
                "reconsumeTimes": record.reconsume_times,
                "ofHalf": halves[record.prepared_transaction_offset] if record.topic == TOPIC else None,
                "properties": properties if record.topic != OP else record.raw[-len(END_PROPERTIES) :],
            }
        )
    return {topic: sorted(records, key=lambda record: record["body"]) for topic, records in seen.items()}


def test_both_brokers_store_the_same(namesrv, tmp_path_factory):
    shapes = {}
    for kind in (APACHE, ROCKETD):
        brokers = StoreBrokers(tmp_path_factory.mktemp(kind), namesrv, {**QUICK, "transactionCheckMax": "1"})
        try:
            start(brokers, kind, {"transactionTimeOut": LATER["transactionTimeOut"]})
            given = ("--namesrv", brokers.namesrv, "--topic", TOPIC, "--group", "java")
            home = tmp_path_factory.mktemp("java")
            run_client("java", "transact", *given, "--first", 0, "--count", 3, home=home, jvm=("-Xmx256m",))
            begin_checks(brokers, 2)
            await_condition("one is given up", lambda b=brokers: max_offset(b.address, GIVEN_UP, 0) == 1)
            brokers.stop()
        finally:
            brokers.close()
        shapes[kind] = shape(brokers.store)
    assert {topic: len(records) for topic, records in shapes[ROCKETD].items()} == {
        HALF: 4,
        OP: 2,
        TOPIC: 1,
        GIVEN_UP: 1,
    }
    assert shapes[ROCKETD] == shapes[APACHE]
