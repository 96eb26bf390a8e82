"""ConsumeQueue against a plain list of entries: put, put again, read, flush, cut, expire, reopen, lose the power."""

import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.layout import FILLER_SIZE
from rocketd.store.format.message import DispatchRequest
from rocketd.store.queue.consume_queue import ConsumeQueue
from rocketd.store.testing import FaultyFileSystem
from tests.support.examples import examples

PER_FILE = 10
SETTINGS = settings(
    max_examples=examples(50),
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class ConsumeQueueMachine(RuleBasedStateMachine):
    """The model: `entries` by queue offset (physical offset, size, tags code), of which those before `flushed` survive
    a power cut; `expired` is where the log begins."""

    def __init__(self):
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.entries = {}
        self.flushed = 0
        self.expired = 0

    @initialize(first=st.sampled_from((0, 0, 3, PER_FILE, 3 * PER_FILE + 1)), physical=st.integers(1, 1 << 40))
    def begin(self, first, physical):
        self.next = self.flushed = first
        self.physical = physical
        self.open()

    def open(self):
        self.fs = FaultyFileSystem()
        directory = os.path.join(self.root, "T", "0")
        self.queue = ConsumeQueue(self.fs, "T", 0, directory, PER_FILE * 20)
        self.queue.load()

    def teardown(self):
        shutil.rmtree(self.root)

    def request(self, offset, physical, size, tags_code):
        return DispatchRequest("T", 0, physical, size, tags_code, 1, offset, (), 0, 0, b"")

    def requests_of(self, offsets):
        return [self.request(offset, *self.entries[offset]) for offset in offsets]

    @rule(
        sizes=st.lists(st.integers(91, 1 << 20), min_size=1, max_size=25),
        gap=st.integers(0, 1000),
        tags_code=st.integers(-(1 << 63), (1 << 63) - 1),
        repeated=st.integers(0, 12),
    )
    def put(self, sizes, gap, tags_code, repeated):
        """New entries, behind some that are there already."""
        first = max(min(self.entries, default=self.next), self.next - repeated)
        old = self.requests_of(range(first, self.next))
        for size in sizes:
            self.physical += gap
            self.entries[self.next] = (self.physical, size, tags_code)
            self.physical += size
            self.next += 1
        self.queue.put([*old, *self.requests_of(range(self.next - len(sizes), self.next))])

    @rule(part=st.floats(0, 1))
    def put_again(self, part):
        if self.entries:
            self.queue.put(self.requests_of(self.chosen(part)))

    def chosen(self, part):
        offsets = sorted(self.entries)
        return offsets[int(part * (len(offsets) - 1)) :]

    @rule()
    def flush(self):
        assert self.queue.flush(0)
        self.flushed = self.next

    @rule(part=st.floats(0, 1))
    def truncate(self, part):
        """The log ends before some entry's record, as recovery finds out."""
        if not self.entries:
            return
        self.flush()
        self.open()
        self.queue.recover(clean=True)
        cut = self.chosen(part)
        self.queue.truncate_dirty(self.entries[cut[0]][0])
        # The log does not end before it begins.
        self.expired = min(self.expired, self.entries[cut[0]][0])
        for offset in cut:
            del self.entries[offset]
        self.next = cut[0]
        self.flushed = min(self.flushed, self.next)
        self.begin_log_again()

    def begin_log_again(self):
        """The log has the record of the last entry, or all of them would have gone with its files."""
        if self.entries:
            self.expired = min(self.expired, self.entries[self.next - 1][0])
        self.queue.correct_min_offset(self.expired)

    @rule(part=st.floats(0, 1))
    def expire(self, part):
        """The log begins with some entry's record."""
        if self.entries:
            self.expired = self.entries[self.chosen(part)[0]][0]
            self.queue.correct_min_offset(self.expired)

    @rule()
    def reopen(self):
        self.flush()
        self.open()
        self.queue.recover(clean=True)
        self.queue.correct_min_offset(self.expired)

    @rule()
    def lose_power(self):
        self.fs.lose_unsynced()
        self.entries = {offset: entry for offset, entry in self.entries.items() if offset < self.flushed}
        self.next = self.flushed
        self.open()
        self.queue.recover(clean=False)
        # The log ends behind the last known record: truncated entries may have come back.
        self.queue.truncate_dirty(sum(self.entries[self.next - 1][:2]) if self.entries else 0)
        self.begin_log_again()

    @invariant()
    def agrees(self):
        if not hasattr(self, "queue"):
            return
        queue = self.queue
        if not self.entries:
            assert [offset for offset in range(self.next) if self.visible(offset) is not None] == []
            return
        assert queue.max_offset == self.next
        assert queue.max_physic_offset == sum(self.entries[self.next - 1][:2])
        there = [offset for offset, entry in self.entries.items() if entry[0] >= self.expired]
        if there:
            assert queue.min_offset == min(there)
        for offset in there:
            assert queue.entry(offset) == self.entries[offset]
            last_of_file = min(offset - offset % PER_FILE + PER_FILE, self.next)
            assert list(queue.read(offset)) == [self.entries[each] for each in range(offset, last_of_file)]
        assert queue.read(self.next) is None
        assert all(self.visible(offset) is None for offset in range(min(there, default=0)) if there)

    def visible(self, offset):
        """The entry that a reader gets; fillers are none."""
        entry = self.queue.entry(offset)
        return None if entry is None or entry[1] == FILLER_SIZE else entry


class ConsumeQueueModelTests(SynchronousTestCase):
    def test_consume_queue_behaves_as_a_list(self):
        run_state_machine_as_test(ConsumeQueueMachine, settings=SETTINGS)
