"""One store on its way between the two brokers: acknowledged messages, messages served by each, and the files."""

import base64
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.interop.store_append import append_ipv6
from tests.interop.store_checks import SCHEDULE_TOPIC, as_java_sees, check_index, check_log, check_queues
from tests.interop.store_load import StoreLoad
from tests.interop.toolchain import Run, run_client
from tests.support import wire
from tests.support.store_brokers import SLOTS, StoreBrokers
from tests.support.store_directory import (
    COMPRESSED,
    Record,
    queues_of,
    read_checkpoint,
    read_log,
    read_queues,
    read_table,
)
from tests.support.store_wire import await_condition, create_group, max_offset, pull_records, view_record

DELAYS_MS = [1_000, 10_000]
QUEUES = {"T": 3, "T-order": 2, "T-delay": 4, "T-tx": 2}
GROUP = "readers"
TRANSACTIONS = 9
APPENDED = 10
TRANSACTION_TOPICS = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
_LOOKED_UP_EVERY = 3  # messages: the others are compared by pulls alone


class StoreJourney:
    """Drives a store from phase to phase: a broker starts, everything is checked, more is written, the broker ends."""

    def __init__(self, brokers: StoreBrokers, homes: Callable[[str], Path]) -> None:
        self.brokers = brokers
        self.store = brokers.store
        self._homes = homes
        self.sent: list[dict] = []
        """The output of the Java client for all its messages."""
        self.transactions: list[dict] = []
        self.records: list[Record] = []
        """The log as it was when the last broker ended."""
        self.kills = 0
        self.delays_ms = DELAYS_MS
        self._phases = 0
        self._counter = itertools.count(0)
        self._next_index = 0
        self._tables: dict[str, dict] = {}
        self._committed: dict[str, int] = {}

    # ------------------------------------------------------------ a phase

    def begin(self, kind: str, host: str, **properties: str) -> None:
        """Start a broker; check that it serves the messages of the store, and changes existing tables."""
        if (self.store / "config" / "consumerOffset.json").exists():  # a timer writes it, which a kill may forestall
            self._committed = read_table(self.store, "consumerOffset")["offsetTable"].get(f"T@{GROUP}", {})
        self.brokers.start(kind, host, **properties)
        self._phases += 1
        if self._phases == 1:
            for topic, queues in QUEUES.items():
                wire.create_topic(self.brokers.address, topic, queues)
        wire.create_topic(self.brokers.address, f"T-{self._phases}", self._phases)
        create_group(self.brokers.address, f"group-{self._phases}", retry_max_times=self._phases)
        # Without a route, a producer takes the queues of the template.
        for topic in (*QUEUES, f"T-{self._phases}"):
            self.brokers.await_route(topic)
        self._check_served()

    def fill(self) -> None:
        """Have the Java client send some of every kind; return once messages with a short delay were delivered."""
        lines = self._java("fill", "--group", "writers", "--first", self._next_index).lines
        assert {line["status"] for line in lines if line["kind"] != "oneway"} == {"SEND_OK"}
        assert {line["queueId"] for line in lines if line["kind"] == "sync"} == set(range(QUEUES["T"]))
        self._next_index += len(lines)
        self.sent += lines
        self.await_delivered("delay-1")

    def postpone(self) -> None:
        """Have the Java client send some of the long delay."""
        lines = self._java("fill", "--group", "writers", "--first", self._next_index, "--level", 2).lines
        assert {(line["kind"], line["status"]) for line in lines} == {("delay-2", "SEND_OK")}
        self._next_index += len(lines)
        self.sent += lines

    def transact(self) -> None:
        """Have transactions committed, rolled back and left undecided."""
        arguments = ("--group", "transactors", "--first", self._next_index, "--count", TRANSACTIONS)
        self.transactions += self._java("transact", *arguments, topic="T-tx").lines
        self._next_index += TRANSACTIONS

    def decide(self) -> None:
        """Have the broker check undecided transactions, stored by either broker, and commit them."""
        wanted = {line["msgId"] for line in self.transactions if line["state"] != "ROLLBACK_MESSAGE"}
        arguments = ("--group", "transactors", "--check", "--count", len(wanted))
        checked = {line["index"] for line in self._java("transact", *arguments, topic="T-tx").lines}
        assert checked == {line["index"] for line in self.transactions if line["state"] == "UNKNOW"}
        assert self._unique_keys("T-tx").keys() == wanted

    def await_delivered(self, *kinds: str) -> None:
        """Wait until every delayed message of these kinds has come to its topic."""
        wanted = {line["msgId"] for line in self.sent if line["kind"] in kinds}
        await_condition(f"delivery of {' and '.join(kinds)}", lambda: wanted <= self._unique_keys("T-delay").keys())

    def consume(self) -> None:
        """Have the group read on: it gets the messages behind the offsets of the table, each once."""
        messages = [
            (queue_id, record.queue_offset)
            for (topic, queue_id), records in queues_of(read_log(self.store)).items()
            for record in records
            if topic == "T" and record.queue_offset >= int(self._committed.get(str(queue_id), 0))
        ]
        lines = self._java("consume", "--group", GROUP, "--count", len(messages), "--timeout", 120).lines
        assert Counter((line["queueId"], line["queueOffset"]) for line in lines) == Counter(messages)

    def look_up(self) -> None:
        """Have the Java client look messages up by id, unique key and keys: it finds the records, and only them."""
        by_id = {record.offset_msg_id: record for record in self.records}
        end = self.records[-1].physical_offset
        asked = [r for r in self.records if r.topic in QUEUES][::_LOOKED_UP_EVERY]
        wanted = self._homes("wanted") / "wanted.jsonl"
        with wanted.open("w") as file:
            for record in asked:
                line = {
                    "topic": record.topic,
                    "offsetMsgId": record.offset_msg_id,
                    "msgId": record.properties.get("UNIQ_KEY"),
                    "keys": record.properties["KEYS"].split()[:2],
                }
                file.write(json.dumps(line) + "\n")
        lines = iter(self._java("look-up", "--group", "finders", "--wanted", wanted).lines)
        keyed: dict[tuple[str, str], list[Record]] = {}
        for record in self.records:
            for key in record.index_keys:
                keyed.setdefault((record.topic, key), []).append(record)
        for record in asked:
            line = next(lines)
            assert line["found"] == [as_java_sees(by_id[line["wanted"]])]
            same_key = keyed[record.topic, record.properties["UNIQ_KEY"]]
            line = next(lines)
            # A message that was delivered again after a crash is there twice; this search shows the first.
            assert line["found"] == [as_java_sees(same_key[0])]
            for key in record.properties["KEYS"].split()[:2]:
                line = next(lines)
                assert (line["by"], line["wanted"]) == ("key", key)
                found = sorted(line["found"], key=lambda message: message["physicalOffset"])
                if self.kills:
                    # The last message of a finished index file is entered again if the later ones were lost.
                    found = [message for message, _ in itertools.groupby(found)]
                expected = [as_java_sees(each) for each in keyed[record.topic, key]]
                assert found[: len(expected)] == expected
                # Messages delivered while this runs do not count.
                others = [(message["topic"], message["physicalOffset"]) for message in found[len(expected) :]]
                assert all(topic == "T-delay" and offset > end for topic, offset in others), (key, others)
        assert next(lines, None) is None

    def load(self, acknowledged: int, then: Callable[[], None]) -> None:
        """Have a client send, and call a function after so many answers, while it goes on."""
        load = StoreLoad(self.brokers.namesrv, "T", self._next_index, self._homes("load"))
        try:
            load.await_acknowledged(acknowledged)
            then()
        finally:
            lines = load.end()
        self._next_index = 1 + max(line["index"] for line in lines)
        self.sent += lines

    def kill_under_load(self, acknowledged: int) -> None:
        """End the broker by SIGKILL while a client sends, after so many answers; check its files."""
        self.load(acknowledged, self.brokers.kill)
        self.kills += 1
        self._check_directory(clean=False)

    def append_ipv6(self) -> None:
        """Add records of every kind of host to the stopped store, through rocketd's storage engine."""
        lines = append_ipv6(self.store, self.brokers.port, "T", self._next_index, APPENDED)
        self._next_index += len(lines)
        self.sent += lines
        self._check_directory(clean=True)

    def stop(self, index: bool = True) -> None:
        """End the broker by SIGTERM, and check its files; without ``index``, all but the index."""
        self.brokers.stop()
        self._check_directory(clean=True, index=index)

    def kill(self) -> None:
        """End the broker by SIGKILL, and check its files."""
        self.brokers.kill()
        self.kills += 1
        self._check_directory(clean=False)

    def undelivered(self) -> set[str]:
        """Unique keys of the delayed messages that had not come to their topic when the last broker ended."""
        delivered = {record.properties["UNIQ_KEY"] for record in self.records if record.topic == "T-delay"}
        return {line["msgId"] for line in self.sent if line["topic"] == "T-delay"} - delivered

    # ------------------------------------------------------------ messages served by a broker

    def _check_served(self) -> None:
        """Every record of the log is served from its queue, byte for byte and in order."""
        address = self.brokers.address
        for (topic, queue_id), records in queues_of(self.records).items():
            if topic in TRANSACTION_TOPICS:  # not in the topics' table, so neither broker lets them be pulled
                assert max_offset(address, topic, queue_id) >= len(records)
                served = [view_record(address, record.physical_offset) for record in records]
            else:
                served = pull_records(address, topic, queue_id)
            assert served[: len(records)] == [record.raw for record in records], (topic, queue_id)

    def _unique_keys(self, topic: str) -> Counter[str]:
        served = [raw for queue in range(QUEUES[topic]) for raw in pull_records(self.brokers.address, topic, queue)]
        # Where each lies does not matter here, only that it is a record: its own offset is taken as given.
        records = [Record(int.from_bytes(raw[28:36], "big"), raw) for raw in served]
        return Counter(record.properties["UNIQ_KEY"] for record in records)

    # ------------------------------------------------------------ files of the directory

    def _check_directory(self, clean: bool, index: bool = True) -> None:
        before = self.records
        self.records = read_log(self.store, torn=not clean)
        assert [r.raw for r in self.records[: len(before)]] == [r.raw for r in before]
        check_log(self.records)
        check_queues(self.store, self.records, self.delays_ms, complete=clean)
        if clean and index:
            check_index(self.store, SLOTS, self.records, once=not self.kills)
        self._check_acknowledged()
        self._check_delayed(clean)
        self._check_files(clean)
        self._check_tables(clean)

    def _check_acknowledged(self) -> None:
        """Check that the log has each acknowledged message once, at the place told to the client."""
        by_id = {record.offset_msg_id: record for record in self.records}
        times = Counter((record.topic, record.properties.get("UNIQ_KEY")) for record in self.records)
        for line in self.sent:
            if line["kind"] == "oneway":
                continue
            record = by_id[line["offsetMsgId"]]
            body = zlib.decompress(record.body) if record.sys_flag & COMPRESSED else record.body
            assert base64.b64encode(body).decode() == line["body"], line
            assert record.flag == line["flag"], line
            properties = record.properties
            assert properties["UNIQ_KEY"] == line["msgId"], line
            assert properties.get("TAGS") == line["tags"], line
            assert (properties["KEYS"], properties["index"]) == (line["keys"], str(line["index"])), line
            assert times[record.topic, line["msgId"]] == 1, line
            if line["kind"].startswith("delay"):
                assert (record.topic, properties["REAL_TOPIC"]) == (SCHEDULE_TOPIC, line["topic"]), line
            else:
                assert record.topic == line["topic"], line
                assert (record.queue_id, record.queue_offset) == (line["queueId"], line["queueOffset"]), line

    def _check_delayed(self, clean: bool) -> None:
        """A delayed message came to its topic once; after kills, once more for each kill at most."""
        delivered = Counter(r.properties["UNIQ_KEY"] for r in self.records if r.topic == "T-delay")
        sent = {line["msgId"]: line for line in self.sent if line["topic"] == "T-delay"}
        assert delivered.keys() <= sent.keys()
        assert max(delivered.values(), default=0) <= 1 + self.kills
        assert all(delivered[key] for key, line in sent.items() if line["kind"] == "delay-1")

    def _check_files(self, clean: bool) -> None:
        assert (self.store / "abort").exists() is not clean
        assert (self.store / "lock").read_bytes() == b"lock"
        if clean:
            physical, logical, _ = read_checkpoint(self.store)
            # Apache's broker may append once more after its last entry here, but has no entries for missing messages.
            assert 0 < max(physical, logical) <= self.records[-1].store_timestamp

    def _check_tables(self, clean: bool) -> None:
        """Check that a broker has kept the entries of the other in a table, although it has rewritten the table."""
        topics = read_table(self.store, "topics")["topicConfigTable"]
        groups = read_table(self.store, "subscriptionGroup")["subscriptionGroupTable"]
        for table, kept in ((topics, "topics"), (groups, "groups")):
            for name, config in self._tables.get(kept, {}).items():
                assert table[name] == config, (kept, name)
        wanted = {**QUEUES, **{f"T-{phase}": phase for phase in range(1, self._phases + 1)}}
        assert {name: topics[name]["writeQueueNums"] for name in wanted} == wanted
        retries = {f"group-{phase}": phase for phase in range(1, self._phases + 1)}
        assert {name: groups[name]["retryMaxTimes"] for name in retries} == retries
        self._tables = {
            "topics": {name: topics[name] for name in wanted},
            "groups": {name: groups[name] for name in retries},
        }
        if clean:
            delivered = read_table(self.store, "delayOffset")["offsetTable"]
            queues = read_queues(self.store)
            entries = [len(queues.get((SCHEDULE_TOPIC, level - 1), ())) for level in (1, 2)]
            assert int(delivered.get("1", 0)) == entries[0]
            assert int(delivered.get("2", 0)) <= entries[1]

    def _java(self, command: str, *arguments: object, topic: str = "T") -> Run:
        home = self._homes(f"java-{command}")
        return run_client("java", command, "--namesrv", self.brokers.namesrv, "--topic", topic, *arguments, home=home)
