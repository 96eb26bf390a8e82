"""SQL92 filters: the same truths as Apache's evaluator, the same bits as its bloom filter, and real clients with them."""

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.base.settings import BrokerConfig
from rocketd.broker.tables.filters.consumer_filter_file import ConsumerFilterWrapper
from rocketd.broker.tables.filters.consumer_filters import ConsumerFilterManager
from rocketd.filter.bloom import BloomFilter
from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import Selector
from rocketd.remoting.bodies.tables import SubscriptionData
from rocketd.store.base.filesystem import RealFileSystem
from tests.interop.clients import Clients, Cluster
from tests.interop.jvm_filter import JvmFilter
from tests.interop.toolchain import ClientError
from tests.support.apache import ApacheCluster, fetch_jars
from tests.support.jars import PeerUnavailableError
from tests.support.patience import PATIENT
from tests.support.store_directory import java_hash, queues_of, read_log, read_queues, read_table
from tests.support.store_wire import await_dispatched
from tests.support.twistd_servers import RocketdCluster

CASES = settings(
    max_examples=2500,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def apache(lacking):
    try:
        jvm = JvmFilter()
    except PeerUnavailableError as e:
        lacking(str(e))
    yield jvm
    jvm.stop()


def evaluate(expression: str, properties: str) -> str:
    """Evaluate an expression with rocketd, in the words of JvmFilter.evaluate."""
    try:
        selector = Selector(expression)
    except SelectorError:
        return "refused"
    table = dict(entry.split("\x01", 1) for entry in properties.split("\x02") if entry)
    try:
        value = selector.evaluate(table)
    except ValueError:
        answer = "error"
    else:
        answer = {True: "true", False: "false", None: "null"}[value]
    assert selector.matches(properties.encode()) is (answer == "true")
    return answer


def check(apache: JvmFilter, expression: str, properties: dict[str, str]) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    assert evaluate(expression, text) == apache.evaluate(expression, text)


NAMES = ["a", "b", "c", "_d", "$e1", "A"]

integers = st.sampled_from([0, 1, 2, 3, 5, 10, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63]).map(str)
fractions = st.sampled_from(["0.5", "1.0", "3.", ".5", "5e0", "2.5E+1", "1e-400", "1e400", "0.0", "9007199254740992.0"])
texts = st.sampled_from(["", "x", "it''s", "1", "true", "1.0", "ÿ", "🚀", "5 "]).map(lambda text: f"'{text}'")
numbers = st.one_of(integers, integers.map(lambda digits: digits + "L"), fractions)
constants = st.one_of(numbers, texts, st.sampled_from(["TRUE", "false", "NULL"]))
names = st.sampled_from(NAMES)
values = st.one_of(
    st.sampled_from(
        [
            "1",
            "2",
            "5",
            "-5",
            "+3",
            "2147483647",
            "2147483648",
            "-2147483648",
            "9223372036854775807",
            "1.5",
            "1e3",
            "NaN",
        ]
    ),
    st.sampled_from(
        ["-Infinity", " 5", "5 ", "5d", "0x1p3", "-0.0", "0", "\u0665", "1_0", "x", "true", "TRUE", "it's", "ÿ"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=4),
)
messages = st.dictionaries(names, values, max_size=6)

operands = st.recursive(
    st.one_of(names, names, names, constants),
    lambda inner: st.one_of(
        inner.map(lambda text: f"({text})"), inner.map(lambda text: f"-{text}"), inner.map(lambda text: f"+ {text}")
    ),
    max_leaves=3,
)


accepted = numbers.filter(lambda text: text.rstrip("L") not in (str(2**63), "1e-400", "1e400", "0.0", "0L"))
compared = st.one_of(accepted, accepted.map(lambda text: f"-{text}"), names)
sensible = st.one_of(
    st.builds("{} {} {}".format, names, st.sampled_from(["=", "<>"]), st.one_of(compared, texts, st.just("TRUE"))),
    st.builds("{} {} {}".format, names, st.sampled_from(["<", "<=", ">", ">="]), compared),
    st.builds("{} {} {}".format, accepted, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), names),
    st.builds("{} {} {} AND {}".format, names, st.sampled_from(["BETWEEN", "NOT BETWEEN"]), names, compared),
    st.builds("{} IN ({})".format, names, st.lists(texts, min_size=1, max_size=6).map(", ".join)),
    st.builds("{} {}".format, names, st.sampled_from(["IS NULL", "is not null", ""])),
)
sensible = st.recursive(
    sensible,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("NOT ({}) {} ({})".format, inner, st.sampled_from(["and", "or", "=", "<>"]), inner),
    ),
    max_leaves=6,
)


def _conditions(inner):
    unary = st.one_of(operands, operands, inner.map(lambda text: f"({text})"))
    compared = st.builds("{} {} {}".format, unary, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), unary)
    ranges = st.builds("{} {} {} AND {}".format, unary, st.sampled_from(["BETWEEN", "NOT between"]), unary, unary)
    lists = st.builds(
        "{} {} ({})".format,
        st.one_of(names, names, unary),
        st.sampled_from(["IN", "not IN"]),
        st.lists(texts, min_size=1, max_size=6).map(", ".join),
    )
    nulls = st.builds("{} {}".format, unary, st.sampled_from(["IS NULL", "is not null"]))
    joined = st.builds("{} {} {}".format, inner, st.sampled_from(["AND", "OR", "or"]), inner)
    negated = inner.map(lambda text: f"NOT ({text})")
    return st.one_of(compared, ranges, lists, nulls, joined, joined, joined, negated)


conditions = st.one_of(sensible, st.recursive(operands, _conditions, max_leaves=8))

tokens = st.one_of(
    names,
    constants,
    st.sampled_from(
        ["NOT", "AND", "OR", "BETWEEN", "IN", "IS", "NULL", "=", "<>", "<", "<=", ">", ">=", "(", ")", ","]
    ),
    st.sampled_from(
        ["+", "-", "--", "-- x\n", "/* y */", "/* y **/", "/*", ";", "'", '"', "\n", "0l", "007", "1e", "é"]
    ),
)


@CASES
@given(condition=conditions, message=messages)
def test_expressions_evaluate_as_by_apache(apache, condition, message):
    check(apache, condition, message)


@CASES
@given(words=st.lists(tokens, max_size=9), glue=st.sampled_from([" ", " ", ""]), message=messages)
def test_almost_valid_expressions_evaluate_as_by_apache(apache, words, glue, message):
    check(apache, glue.join(words), message)


@CASES
@given(text=st.text(st.characters(codec="utf-8"), max_size=12), message=messages)
def test_arbitrary_text_evaluates_as_by_apache(apache, text, message):
    check(apache, text, message)


@CASES
@given(left=values, right=values, operator=st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), constant=constants)
def test_pairs_of_values_compare_as_by_apache(apache, left, right, operator, constant):
    for expression in (f"a {operator} b", f"a {operator} {constant}", f"{constant} {operator} a"):
        check(apache, expression, {"a": left, "b": right})


@settings(CASES, max_examples=2000)
@given(
    key=st.text(st.characters(codec="utf-8"), max_size=70),
    error_rate=st.one_of(st.just(20), st.integers(1, 99)),
    expected=st.one_of(st.just(32), st.integers(1, 10_000)),
)
def test_keys_have_the_bits_of_apaches_bloom_filter(apache, key, error_rate, expected):
    ours = BloomFilter(error_rate, expected)
    assert (ours.hashes, ours.bits, ours.positions(key)) == apache.bloom(error_rate, expected, key)


GROUPS, TOPICS = ("G", "H"), ("T", "U")
subscribed = st.tuples(
    st.sampled_from(["SQL92", "SQL92", "SQL92", "TAG", "", "OTHER"]),
    st.integers(1, 4),
    st.sampled_from(["a = 1", "a = 2", "a =", "TRUE"]),
)
heartbeats = st.tuples(st.sampled_from(GROUPS), st.dictionaries(st.sampled_from(TOPICS), subscribed))


@settings(CASES, max_examples=600)
@given(events=st.lists(st.one_of(heartbeats, heartbeats, st.sampled_from(GROUPS)), max_size=12))
def test_groups_come_and_go_as_in_apaches_table(apache, events, tmp_path):
    apache.empty()
    file = JsonFile(str(tmp_path / "none.json"), ConsumerFilterWrapper, RealFileSystem())
    ours = ConsumerFilterManager(BrokerConfig(), file, lambda: 1_795_286_100_000)
    for event in events:
        if isinstance(event, str):
            apache.unregister(event)
            ours.unregister(event)
        else:
            group, table = event
            subscriptions = [(topic, *rest) for topic, rest in table.items()]
            apache.register(group, subscriptions)
            ours.register_group(
                group,
                [
                    SubscriptionData(topic, text, sub_version=version, expression_type=kind)
                    for topic, kind, version, text in subscriptions
                ],
            )
        for topic in TOPICS:
            for group in GROUPS:
                known = ours.get(topic, group)
                state = "none"
                if known is not None:
                    state = f"{known.client_version} {str(known.is_dead).lower()} {known.expression}"
                assert state == apache.state(topic, group), events


# ---------------------------------------------------------------- clients

COUNT = 200
LANGUAGES = ["java", "go"]
PULLER = Path(__file__).parent / "sql_filter" / "LitePull.java"

# Java looks for its share of new queues every 20 s; a retry topic's queue is such a one.
QUICK_REBALANCE = "-Drocketmq.client.rebalance.waitInterval=500"
PLAIN = {**PATIENT, "enablePropertyFilter": "true"}
WITH_BITMAPS = {
    **PLAIN,
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "filterSupportRetry": "true",
}


def start(kind, directory, properties, lacking):
    servers = kind(directory, properties=properties)
    try:
        servers.start()
    except PeerUnavailableError as e:
        lacking(str(e))
    return servers


@pytest.fixture(scope="module", params=[PLAIN, WITH_BITMAPS], ids=["plain", "bitmaps"])
def filtering(request, tmp_path_factory, lacking):
    """A cluster with a broker that filters by properties."""
    kind = ApacheCluster if os.environ.get("ROCKETD_INTEROP_SERVERS") == "apache" else RocketdCluster
    servers = start(kind, tmp_path_factory.mktemp("filtering"), request.param, lacking)
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    return tmp_path_factory.mktemp


def clients_of(servers, homes) -> Clients:
    return Clients(Cluster(servers.namesrv_address, servers.broker_address), homes)


@pytest.fixture
def filtering_clients(filtering, homes):
    return clients_of(filtering, homes)


def indexes(run) -> list[int]:
    return sorted(line["index"] for line in run.lines)


@pytest.mark.parametrize("language", LANGUAGES)
def test_client_gets_messages_selected_by_its_expression(filtering_clients, fresh, language):
    topic = fresh("Filtered")
    filtering_clients.require(language)
    filtering_clients.run(language, "send", topic, "--group", fresh("P"), "--count", COUNT)
    for expression, wanted in (
        (f"index BETWEEN 50 AND 99 AND from = '{language}'", range(50, 100)),
        ("TAGS IN ('TagB', 'TagC') OR index < 10 AND missing IS NULL", sorted({*range(10), *range(1, COUNT, 2)})),
    ):
        arguments = ("--group", fresh("G"), "--count", len(wanted), "--timeout", 120, "--sql", expression)
        assert indexes(filtering_clients.run(language, "consume", topic, *arguments)) == list(wanted)


def test_returning_group_gets_messages_stored_meanwhile(filtering_clients, fresh):
    """The broker kept its filter, and noted beside each message whether it matches."""
    topic, group, producer = fresh("Returned"), fresh("G"), fresh("P")
    filtering_clients.require("java")
    arguments = ("--group", group, "--timeout", 120, "--sql", "index >= 20 AND TAGS <> 'TagA'")
    for count in (40, 60):
        filtering_clients.run("java", "send", topic, "--group", producer, "--count", count)
        wanted = set(range(21, count, 2))
        received = filtering_clients.run("java", "consume", topic, "--count", len(wanted), *arguments)
        # The client may have ended before it stored its offsets: some messages come twice then.
        assert set(indexes(received)) == wanted


def test_an_expression_in_every_pull_selects(filtering, filtering_clients, fresh):
    """As lite pull consumers have it: the broker need not know the group's filter."""
    topic, count = fresh("Pulled"), 20
    filtering_clients.require("java")
    filtering_clients.run("java", "send", topic, "--group", fresh("P"), "--count", 40)
    command = ["java", "-cp", f"{fetch_jars()}/*", str(PULLER), filtering.namesrv_address, topic, fresh("G")]
    done = subprocess.run(
        [*command, "index BETWEEN 10 AND 29", str(count)], capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(done.stdout) == list(range(10, 30))


def test_refused_messages_come_again_through_the_filter(filtering_clients, fresh):
    topic, group = fresh("Retried"), fresh("G")
    filtering_clients.require("java")
    filtering_clients.run("java", "send", topic, "--group", fresh("P"), "--count", 20)
    arguments = ("--group", group, "--count", 5, "--timeout", 120, "--sql", "index > 14", "--fail-first")
    received = filtering_clients.run("java", "consume", topic, *arguments, jvm=(QUICK_REBALANCE,))
    again = {line["index"] for line in received.lines if line["reconsumeTimes"] and line["accepted"]}
    assert again == set(range(15, 20))
    assert indexes(received) == sorted([*range(15, 20)] * 2)


@pytest.mark.parametrize("language", LANGUAGES)
def test_bad_expression_ends_the_client_with_an_error(filtering_clients, fresh, language):
    topic = fresh("Refused")
    filtering_clients.require(language)
    filtering_clients.run(language, "send", topic, "--group", fresh("P"), "--count", 4)
    arguments = ("--group", fresh("G"), "--count", 1, "--timeout", 5, "--sql", "index >")
    with pytest.raises(ClientError) as failure:
        filtering_clients.run(language, "consume", topic, *arguments)
    if language == "java":  # Go does not ask beforehand
        assert "CODE: 23" in str(failure.value)


# ---------------------------------------------------------------- bitmaps

EXT_UNIT = struct.Struct(">hqqh")
EXT_ADDRESS_BASE = -(1 << 63)
FILTERS = {"Gone": "index BETWEEN 3 AND 30", "Other": "TAGS = 'TagB' AND NOT (index > 20)"}
ONE_STORE = {**WITH_BITMAPS, "mappedFileSizeCommitLog": str(64 << 20)}


@pytest.mark.parametrize(
    ("kind", "following"), [(RocketdCluster, ApacheCluster), (ApacheCluster, RocketdCluster)], ids=["rocketd", "apache"]
)
def test_filter_bits_of_all_messages_equal_apaches(kind, following, apache, homes, tmp_path, lacking):
    """The bytes that a broker writes into the extension of a queue, from the first message on; and the other broker
    takes over.
    """
    servers = start(kind, tmp_path, ONE_STORE, lacking)
    topic = "Noted"
    try:
        clients = clients_of(servers, homes)
        clients.require("java")
        clients.run("java", "send", topic, "--group", "P", "--count", 40)
        await_dispatched(servers.broker_address)  # before it has the filters
        for group, expression in FILTERS.items():
            clients.run("java", "consume", topic, "--group", group, "--count", 1, "--timeout", 120, "--sql", expression)
        clients.run("java", "send", topic, "--group", "P", "--count", 40)
    finally:
        servers.stop()
    store = tmp_path / "store"
    stored = read_table(store, "consumerFilter")["filterDataByTopic"][topic]["groupFilterData"]
    assert {group: data["expression"] for group, data in stored.items()} == FILTERS
    positions = {group: apache.bloom(20, 32, f"{group}#{topic}")[2] for group in FILTERS}
    assert {group: data["bloomFilterData"]["bitPos"] for group, data in stored.items()} == positions
    entries = read_queues(store)
    without, with_bits = 0, 0
    for (name, queue_id), records in queues_of(read_log(store)).items():
        if name != topic:
            continue
        expected = bytearray()
        for record, (_, _, tags_code) in zip(records, entries[topic, queue_id], strict=True):
            assert tags_code - EXT_ADDRESS_BASE == len(expected)
            bitmap = b""
            if record.queue_offset >= len(records) // 2:
                bits = bytearray(14)
                for group, expression in FILTERS.items():
                    text = "\x02".join(f"{key}\x01{value}" for key, value in record.properties.items())
                    if apache.evaluate(expression, text) == "true":
                        for position in positions[group]:
                            bits[position // 8] |= 1 << position % 8
                bitmap = bytes(bits)
                with_bits += any(bits)
            else:
                without += 1
            code = java_hash(record.properties["TAGS"])
            expected += EXT_UNIT.pack(20 + len(bitmap), code, record.store_timestamp, len(bitmap)) + bitmap
        (file,) = (store / "consumequeue_ext" / topic / str(queue_id)).iterdir()
        assert file.read_bytes()[: len(expected) + 20] == expected + bytes(20)
    assert (without, with_bits) == (40, 29)

    servers = start(following, tmp_path, ONE_STORE, lacking)
    try:
        clients = clients_of(servers, homes)
        wanted = set(range(3, 31))
        arguments = ("--group", "Gone", "--timeout", 120, "--sql", FILTERS["Gone"])
        assert set(indexes(clients.run("java", "consume", topic, "--count", len(wanted), *arguments))) == wanted
    finally:
        servers.stop()
