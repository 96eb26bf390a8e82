"""MappedFileQueue against a plain run of bytes, with files of both kinds: any order of appends, flushes, cuts, deletions,
reopenings and power cuts."""

import os
import shutil
import tempfile

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

from rocketd.store.log.mapped_file import PAGE_SIZE, LogFile
from rocketd.store.log.mapped_file_queue import MappedFileQueue
from rocketd.store.log.queue_file import QueueMappings
from rocketd.store.testing import FaultyFileSystem
from tests.support.examples import examples

FILE_SIZE = 3 * PAGE_SIZE
SETTINGS = settings(
    max_examples=examples(60),
    stateful_step_count=30,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class QueueMachine(RuleBasedStateMachine):
    """The model: `data` is the bytes from offset `begin` on, of which those before `flushed` survive a power cut."""

    make = LogFile

    def __init__(self):
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.directory = os.path.join(self.root, "topic", "0")
        self.begin = 0
        self.data = bytearray()
        self.flushed = 0
        self.views = []

    @initialize()
    def open(self):
        self.fs = FaultyFileSystem()
        self.fs.makedirs(self.directory)
        self.queue = MappedFileQueue(self.fs, self.directory, FILE_SIZE, self.make)
        self.queue.load()

    def teardown(self):
        self.queue.close()
        self.views.clear()
        shutil.rmtree(self.root)

    @property
    def end(self):
        return self.begin + len(self.data)

    @rule(size=st.integers(1, 6000), fill=st.integers(1, 255))
    def append(self, size, fill):
        last = self.queue.last
        if last is not None and not last.full and last.wrote_position + size > FILE_SIZE:
            # The bytes behind are unspecified: a truncation without `clear` leaves them.
            self.data += bytes((fill,)) + last.view[last.wrote_position + 1 :]
            last.end_file(bytes((fill,)))
        last = self.queue.last
        if last is None or last.full:
            file = self.queue.open_file(self.end)
            if self.make is LogFile:
                self.fs.sync_dir(self.directory)
            self.queue.add(file)
        data = bytes((fill,)) * size
        self.queue.last.append(data)
        self.queue.last.store_timestamp = self.end
        self.data += data

    @rule(least=st.sampled_from((0, 0, 1, 2)))
    def flush(self, least):
        crossed = self.flushed // FILE_SIZE != self.end // FILE_SIZE
        if not least or crossed or self.end // PAGE_SIZE - self.flushed // PAGE_SIZE >= least:
            self.flushed = self.end
        assert self.queue.flush(least) == (self.flushed == self.end)

    @rule(part=st.floats(0, 1), size=st.integers(0, 9000))
    def read(self, part, size):
        offset = self.begin + int(part * len(self.data))
        file = self.queue.find(offset)
        if file is None:
            assert offset == self.end
            return
        at = offset - file.file_from_offset
        found = file.select(at, size)
        if offset + size <= min(self.end, file.file_from_offset + FILE_SIZE):
            assert found == self.data[offset - self.begin : offset - self.begin + size]
            self.views.append((found, bytes(found)))
        else:
            assert found is None

    @rule()
    def read_elsewhere(self):
        assert self.queue.find(self.begin - 1) is None
        behind = self.queue.find(-(-self.end // FILE_SIZE) * FILE_SIZE)
        assert behind is None or behind.wrote_position == 0

    @rule(part=st.floats(0, 1), clear=st.booleans())
    def truncate(self, part, clear):
        """Truncate as recovery does: flushed bytes only, and files without views only."""
        self.views.clear()
        assert self.queue.flush(0)
        offset = self.begin + int(part * len(self.data))
        self.queue.truncate(offset, clear)
        if offset == self.begin and self.queue.files and self.queue.files[0].file_from_offset >= offset:
            # A file of which nothing is left stays, empty.
            assert [file.wrote_position for file in self.queue.files] == [0]
        del self.data[offset - self.begin :]
        self.flushed = offset
        if clear and self.queue.last is not None:
            rest = self.queue.last.view[self.queue.last.wrote_position :]
            assert not any(rest)

    @rule()
    def delete_first(self):
        files = self.queue.files
        if not files:
            return
        first = files[0]
        wanted = len(files) > 1 and self.flushed >= first.file_from_offset + FILE_SIZE
        assert self.queue.delete_first(first) == wanted
        if wanted:
            assert not os.path.exists(first.path)
            self.begin += FILE_SIZE
            del self.data[:FILE_SIZE]

    @rule()
    def reopen(self):
        """A clean end: the next one has all, and is told where the end is."""
        assert self.queue.flush(0)
        self.flushed = self.end
        self.come_back()

    @precondition(lambda self: self.data)
    @rule()
    def lose_power(self):
        """Flushed bytes stay. Later bytes may be there, and are truncated."""
        self.views.clear()
        self.queue.close()
        self.fs.lose_unsynced()
        del self.data[max(0, self.flushed - self.begin) :]
        self.come_back()

    def come_back(self):
        end = self.end
        self.queue.close()
        self.open()
        self.queue.truncate(end, clear=True)
        self.queue.flushed_where = end

    @invariant()
    def agrees(self):
        if not hasattr(self, "queue"):
            return
        files = self.queue.files
        assert self.queue.max_offset == (self.end if files else 0)
        assert self.queue.min_offset == (self.begin if files else -1)
        assert self.queue.flushed_where == self.flushed or not files
        assert [file.file_from_offset for file in files] == list(
            range(self.begin, self.begin + len(files) * FILE_SIZE, FILE_SIZE)
        )
        for file in files:
            at = file.file_from_offset - self.begin
            assert file.view[: file.wrote_position] == self.data[at : at + FILE_SIZE]
        for view, content in self.views:
            assert view == content


class QueueFileMachine(QueueMachine):
    # Of all files, one is mapped at a time.
    make = QueueMappings(1).open_file


class MappedFileQueueModelTests(SynchronousTestCase):
    def test_log_files(self):
        run_state_machine_as_test(QueueMachine, settings=SETTINGS)

    def test_queue_files(self):
        run_state_machine_as_test(QueueFileMachine, settings=SETTINGS)
