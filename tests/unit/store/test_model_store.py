"""The whole store against plain lists: appends, flushes, reads, queries, clean ends, kills, torn writes, power cuts."""

import os
import shutil
import tempfile
import threading

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.format.message import GetStatus, PutStatus
from rocketd.store.format.record import decode_messages
from rocketd.store.message_store import MessageStore
from rocketd.store.testing import STORE_HOST, FaultyFileSystem, make_message, small_config
from tests.support.examples import examples

QUEUES = 3
NEVER_MS = 1 << 30
SETTINGS = settings(
    max_examples=examples(20),
    stateful_step_count=20,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class Disk(FaultyFileSystem):
    """A disk for several stores in turn: unsynced bytes of one are unsynced for the next too."""

    def new_life(self):
        """Answer calls again."""
        self._crashed = False
        self._tears.clear()

    def remove(self, path):
        super().remove(path)
        self._synced.pop(path, None)
        self._names_not_synced.discard(path)

    def lose_unsynced(self):
        super().lose_unsynced()
        self._paths.clear()
        self._names_not_synced = {path for path in self._names_not_synced if os.path.exists(path)}


class StoreMachine(RuleBasedStateMachine):
    """The model: `messages` in the order of the log, each with queue and body, of which the first `flushed` survive
    everything. A message's key is its body."""

    def __init__(self):
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.fs = Disk()
        self.messages = []
        self.ends = []
        self.flushed = 0
        self.number = 0
        self.now = 1_700_000_000.0

    @initialize()
    def open(self):
        # Flushes come when they are asked for, and at no other time.
        config = small_config(
            os.path.join(self.root, "store"),
            flush_interval_commit_log=NEVER_MS,
            flush_interval_consume_queue=NEVER_MS,
            flush_commit_log_thorough_interval=NEVER_MS,
        )
        self.store = MessageStore(config, STORE_HOST, fs=self.fs, clock=lambda: self.now)
        self.store.holds_dispatch = True
        self.store.start()

    def teardown(self):
        self.store.stop()
        shutil.rmtree(self.root)

    def new_messages(self, sizes, queue_id):
        found = []
        for step, size in enumerate(sizes):
            body = b"%d" % self.number
            found.append(((queue_id + step) % QUEUES, body.ljust(size, b".")))
            self.number += 1
        return found

    def put(self, messages, put):
        self.now += 1
        results = put([make_message(body, queue_id=queue, key=self.key_of(body)) for queue, body in messages])
        self.store.release_dispatch(True)
        return results

    @staticmethod
    def key_of(body):
        return "k" + body.rstrip(b".").decode()

    def take(self, messages, results):
        for message, result in zip(messages, results, strict=True):
            queue, _ = message
            assert result.status is PutStatus.PUT_OK, result
            assert result.queue_offset == sum(1 for each, _ in self.messages if each == queue)
            assert result.physical_offset >= (self.ends[-1] if self.ends else 0)
            self.messages.append(message)
            self.ends.append(result.physical_offset + result.size)

    @rule(sizes=st.lists(st.integers(4, 1500), min_size=1, max_size=8), queue_id=st.integers(0, QUEUES - 1))
    def append(self, sizes, queue_id):
        messages = self.new_messages(sizes, queue_id)
        self.take(messages, self.put(messages, self.store.put_messages))

    @rule(sizes=st.lists(st.integers(4, 400), min_size=1, max_size=6), queue_id=st.integers(0, QUEUES - 1))
    def append_a_batch(self, sizes, queue_id):
        messages = [(queue_id, body) for _, body in self.new_messages(sizes, queue_id)]
        before = self.store.max_physical_offset()
        self.take(messages, self.put(messages, self.store.put_batch))
        begin = self.ends[-len(messages)] - self.ends[-1]
        assert before <= self.ends[-1]
        assert (self.ends[-1] - 1) // 4096 == (self.ends[-1] + begin - 1) // 4096, "a batch lies in one file"

    @rule()
    def flush(self):
        done = threading.Event()
        statuses = []

        def answer(status):
            statuses.append(status)
            done.set()

        self.store.when_flushed(self.store.max_physical_offset(), answer)
        assert done.wait(10)
        assert statuses == [PutStatus.PUT_OK]
        assert self.store.flushed_offset() == self.store.max_physical_offset()
        self.flushed = len(self.messages)

    @rule()
    def flush_queues(self):
        self.store._flush_queues.flush_all()

    @rule()
    def reopen(self):
        self.store.stop()
        self.open()
        self.survived(len(self.messages))
        self.flushed = len(self.messages)

    @rule()
    def kill(self):
        """The process ends at once; its written bytes stay in the machine's memory."""
        self.end_at_once()
        self.open()
        self.survived(len(self.messages))

    @rule()
    def lose_power(self):
        self.end_at_once()
        self.fs.lose_unsynced()
        self.open()
        self.survived(self.flushed)
        self.flushed = len(self.messages)

    @precondition(lambda self: self.messages)
    @rule(sizes=st.lists(st.integers(4, 1500), min_size=1, max_size=5), part=st.floats(0, 1))
    def tear_an_append(self, sizes, part):
        """The power goes in the middle of a write."""
        messages = self.new_messages(sizes, 0)
        self.fs.tear_write(int(part * (sum(sizes) + 140 * len(sizes))))
        results = self.put(messages, self.store.put_messages)
        taken = [result.status for result in results].count(PutStatus.PUT_OK)
        self.take(messages[:taken], results[:taken])
        self.end_at_once()
        self.fs.lose_unsynced()
        self.open()
        self.survived(self.flushed, messages[taken:])
        self.flushed = len(self.messages)

    def end_at_once(self):
        self.fs.crash()
        self.store.stop()
        self.fs.new_life()

    def survived(self, at_least, unanswered=()):
        """Check that the store has a prefix of the messages, and continue with these."""
        count = sum(self.store.get_max_offset("TopicTest", queue) for queue in range(QUEUES))
        sent = [*self.messages, *unanswered]
        assert at_least <= count <= len(sent), (at_least, count, len(sent))
        self.messages = sent[:count]
        end = self.store.max_physical_offset()
        self.ends = [*self.ends[: count - 1], end] if count else []

    @invariant()
    def serves_what_the_model_has(self):
        if not hasattr(self, "store"):
            return
        for queue in range(QUEUES):
            expected = [body for each, body in self.messages if each == queue]
            assert self.read(queue) == expected, queue
            assert self.store.get_max_offset("TopicTest", queue) == len(expected)
            assert self.store.get_min_offset("TopicTest", queue) == 0
        for _, body in self.messages[-3:] + self.messages[:2]:
            found = self.store.query_messages("TopicTest", self.key_of(body), 10, 0, 1 << 62)
            bodies = [decode_messages(view)[0].body for view in found.buffers]
            assert bodies == [body], (body, bodies)

    def read(self, queue):
        found = []
        offset = 0
        while (result := self.store.get_messages("TopicTest", queue, offset, 32, None)).status is GetStatus.FOUND:
            for view in result.buffers:
                for message in decode_messages(view):
                    assert (message.queue_id, message.queue_offset) == (queue, len(found))
                    found.append(message.body)
            offset = result.next_begin_offset
        return found


class StoreModelTests(SynchronousTestCase):
    def test_store_behaves_as_lists(self):
        run_state_machine_as_test(StoreMachine, settings=SETTINGS)
