"""IndexService and its files against a plain list of messages: put, query, flush, expire, reopen, lose the power."""

import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.format.message import DispatchRequest
from rocketd.store.index.service import IndexService
from rocketd.store.state.checkpoint import StoreCheckpoint
from rocketd.store.state.last_stop import LastStop
from rocketd.store.testing import FaultyFileSystem
from tests.support.examples import examples

SLOTS = 7
ENTRIES = 20
KEYS = ("a", "b", "c", "d", "key with more", "Aa", "BB", "\u00fc", "\U0001f680")
ALIKE = {"BB": "Aa"}
"""Keys of the same hash, which the index does not tell apart."""
ALWAYS = (0, 1 << 62)
MANY = 10_000
SETTINGS = settings(
    max_examples=examples(80),
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def any_offset(_offset):
    return True


class IndexMachine(RuleBasedStateMachine):
    """The model: `messages` in the order of the log, each with physical offset, store time and keys; those before
    `log_begin` may be forgotten."""

    def __init__(self):
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.directory = os.path.join(self.root, "index")
        self.messages = []
        self.physical = 1
        self.now = 1_700_000_000_000
        self.log_begin = 0
        self.fs = FaultyFileSystem()

    @initialize()
    def open(self):
        self.load(LastStop.CLEAN)

    def load(self, last_stop):
        self.fs = FaultyFileSystem()
        self.checkpoint = StoreCheckpoint(os.path.join(self.root, "checkpoint"), self.fs)
        self.index = IndexService(
            self.directory, SLOTS, ENTRIES, lambda: self.now, max_msgs_num_batch=MANY, file_system=self.fs
        )
        assert self.index.load(last_stop, self.checkpoint, 1 << 62)

    def teardown(self):
        self.index.close()
        shutil.rmtree(self.root)

    @rule(
        group=st.lists(
            st.tuples(st.lists(st.sampled_from(KEYS), max_size=3, unique=True), st.integers(0, 900)),
            min_size=1,
            max_size=30,
        ),
        repeated=st.integers(0, 5),
    )
    def put(self, group, repeated):
        """New messages; some before them are put again, as after a failure."""
        old = self.messages[len(self.messages) - repeated :] if repeated else []
        new = []
        for keys, pause_ms in group:
            self.now += pause_ms
            new.append((self.physical, self.now, tuple(keys)))
            self.physical += 100
        self.index.put([self.request(message) for message in [*old, *new]])
        self.messages += new

    def request(self, message):
        physical, stored, keys = message
        return DispatchRequest("T", 0, physical, 100, 0, stored, 0, keys, 0, 0, b"")

    def expected(self, key):
        """Offsets of a key's messages, newest first."""
        key = ALIKE.get(key, key)
        return [
            (physical, stored)
            for physical, stored, keys in reversed(self.messages)
            if key in [ALIKE.get(each, each) for each in keys]
        ]

    def query(self, key, limit=MANY, begin=ALWAYS[0], end=ALWAYS[1]):
        """Each offset once: the newest message's is there twice when it is put again."""
        stored = {physical: at for physical, at, _ in self.messages}
        found = self.index.query("T", key, limit, begin, end, lambda offset: begin <= stored[offset] <= end)
        return list(dict.fromkeys(found.offsets))

    @rule(key=st.sampled_from(KEYS), limit=st.integers(1, 10))
    def query_some(self, key, limit):
        found = self.index.query("T", key, limit, *ALWAYS, any_offset).offsets
        assert found == self.index.query("T", key, MANY, *ALWAYS, any_offset).offsets[:limit]

    @rule(key=st.sampled_from(KEYS), part=st.floats(0, 1), span_ms=st.integers(0, 20_000))
    def query_a_time(self, key, part, span_ms):
        if not self.messages:
            return
        first = self.messages[0][1]
        begin = first + int(part * (self.now - first))
        end = begin + span_ms
        found = set(self.query(key, begin=begin, end=end))
        expected = [each for each in self.expected(key) if each[0] >= self.log_begin]
        assert found >= {physical for physical, stored in expected if begin <= stored <= end}
        assert found <= {physical for physical, stored in self.expected(key) if begin <= stored <= end}

    @rule(topic=st.sampled_from(("", "t", "TT")))
    def query_another_topic(self, topic):
        assert self.index.query(topic, "a", MANY, *ALWAYS, any_offset).offsets == []

    @rule()
    def flush(self):
        self.index.flush()

    @rule(part=st.floats(0, 1))
    def expire(self, part):
        """The log begins with some message."""
        if self.messages:
            self.log_begin = max(self.log_begin, self.messages[int(part * (len(self.messages) - 1))][0])
            self.index.delete_expired(self.log_begin)

    @rule()
    def reopen(self):
        self.now += 1
        self.index.flush()
        self.index.close()
        self.load(LastStop.CLEAN)

    @rule()
    def kill(self):
        """The next process loads the entries and puts the uncertain ones again."""
        self.now += 1
        self.index.close()
        self.load(LastStop.KILLED)
        self.index.put([self.request(message) for message in self.messages if message[0] >= self.log_begin])

    @rule()
    def lose_power(self):
        """Recovery puts the records of the log again."""
        self.now += 1
        self.index.close()
        self.fs.lose_unsynced()
        self.load(LastStop.CRASHED)
        self.index.put([self.request(message) for message in self.messages if message[0] >= self.log_begin])

    @invariant()
    def agrees(self):
        if not hasattr(self, "index"):
            return
        for key in KEYS:
            expected = [physical for physical, _ in self.expected(key)]
            found = self.query(key)
            assert [each for each in found if each >= self.log_begin] == [
                each for each in expected if each >= self.log_begin
            ]
            assert set(found) <= set(expected)


class IndexModelTests(SynchronousTestCase):
    def test_index_behaves_as_a_list(self):
        run_state_machine_as_test(IndexMachine, settings=SETTINGS)
