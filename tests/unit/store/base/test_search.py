"""Tests of `rocketd.store.base.search`."""

import mmap
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.search import positions_of
from tests.support.fresh_python import run_python

# Takes away the access to the second page of a mapping, and searches up to the end of the first. The steps of a search
# depend on its start, so five starts are tried.
BEFORE_A_PAGE_WITHOUT_ACCESS = """
import ctypes, mmap
from rocketd.store.base.search import positions_of

mapped = mmap.mmap(-1, 2 * mmap.PAGESIZE)
second = ctypes.addressof(ctypes.c_char.from_buffer(mapped)) + mmap.PAGESIZE
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(second), mmap.PAGESIZE, 0) == 0
for begin in range(5):
    assert list(positions_of(b"four", mapped, begin, mmap.PAGESIZE)) == []
print("searched")
"""


class PositionsTests(SynchronousTestCase):
    def test_each_position_between_begin_and_end_is_found(self):
        data = b"four four four"
        self.assertEqual(list(positions_of(b"four", data, 0, len(data))), [0, 5, 10])
        self.assertEqual(list(positions_of(b"four", memoryview(data), 1, len(data) - 1)), [5])
        self.assertEqual(list(positions_of(b"four", data, 9, 3)), [])

    def test_wanted_bytes_are_no_pattern(self):
        self.assertEqual(list(positions_of(b".*\n", b"ab.*\n", 0, 5)), [2])

    def test_finds_may_overlap(self):
        with mmap.mmap(-1, mmap.PAGESIZE) as mapped:
            mapped[:5] = b"ababa"
            self.assertEqual(list(positions_of(b"aba", mapped, 0, len(mapped))), [0, 2])

    def test_no_byte_behind_the_end_is_read(self):
        """`mmap.find` of Python 3.11.0 to 3.11.4 reads one. The process of such a search died by SIGSEGV."""
        self.assertEqual(run_python("-c", BEFORE_A_PAGE_WITHOUT_ACCESS, cwd=Path.cwd()), (0, "searched\n"))
