"""Search for bytes in mapped files. Reads memory only."""

import re
from collections.abc import Iterator
from mmap import mmap


def positions_of(wanted: bytes, data: mmap | memoryview | bytes, begin: int, end: int) -> Iterator[int]:
    """Yield each position of `wanted` between two positions of `data`, in ascending order. Finds may overlap.

    Use this and never `mmap.find`. In Python 3.11.0 to 3.11.4 it reads one byte after the last (Python issue 105235). If
    the last byte of a mapping ends a page, and the next page is not mapped, the process dies by SIGSEGV. `mmap.rfind` reads
    no byte outside.
    """
    pattern = re.compile(re.escape(wanted))
    while found := pattern.search(data, begin, end):
        yield found.start()
        begin = found.start() + 1
