"""Tests of `rocketd.store.base.search`."""

import mmap
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.search import positions_of
from tests.support.fresh_python import run_python

# Maps a page of a file so that nothing is mapped behind it, and searches up to its end. The steps of a search depend on its
# begin, so five begins are tried.
AT_THE_END_OF_A_MAPPING = """
import ctypes, mmap, tempfile
from rocketd.store.base.search import positions_of

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
with tempfile.TemporaryFile() as file:
    file.truncate(mmap.PAGESIZE)
    for attempt in range(1000):
        # Two pages without access. The first is given back, and the file may be mapped there.
        pages = libc.mmap(None, 2 * mmap.PAGESIZE, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        libc.munmap(pages, mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        if ctypes.addressof(ctypes.c_char.from_buffer(mapped)) == pages:
            break
    else:
        raise SystemExit("the file was never mapped before a page without access")
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

    def test_no_byte_behind_a_mapping_is_read(self):
        """`mmap.find` of Python 3.11.0 to 3.11.4 reads one. The process of such a search died by SIGSEGV."""
        self.assertEqual(run_python("-c", AT_THE_END_OF_A_MAPPING, cwd=Path.cwd()), (0, "searched\n"))
