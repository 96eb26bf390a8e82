"""A separate directory for each module of tests, in memory if the machine has a RAM disk with room.

The unit tests wait for tens of thousands of flushes, and each takes milliseconds on a disk. None of them asks whether a
real disk keeps what was flushed: they lose unflushed bytes with `FaultyFileSystem`, and tests/crash cuts the power.
``ROCKETD_UNIT_DIR`` names another parent directory, for example one on a disk.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

_RAM_DISK = Path("/dev/shm")
_ROOM = 1 << 30  # free bytes


def _parent() -> str | None:
    """Return where to make the directories; None for the default directory for temporary files."""
    if given := os.environ.get("ROCKETD_UNIT_DIR"):
        return given
    if os.access(_RAM_DISK, os.W_OK | os.X_OK) and shutil.disk_usage(_RAM_DISK).free >= _ROOM:
        return str(_RAM_DISK)
    return None


@pytest.fixture(autouse=True, scope="module")
def outside_the_work_tree():
    """Trial's ``mktemp`` makes directories in the current one, other tests ask `tempfile`, programs read TMPDIR."""
    with (
        tempfile.TemporaryDirectory(prefix="rocketd-unit-", dir=_parent(), ignore_cleanup_errors=True) as directory,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.chdir(directory)
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", directory)
        yield
