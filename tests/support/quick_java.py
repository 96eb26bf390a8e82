"""JVM options with which a program that lives for seconds takes less CPU: a quick compiler, an archive of loaded classes.

A JVM ignores an archive that was written by another one or for another class path, and starts without it.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

COMPILER = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Half of a short life would otherwise go into compiling well, and into starting threads to collect garbage."""

WRITES = "-XX:ArchiveClassesAtExit="
"""The start of the option that writes an archive."""

_QUIET = "-Xlog:disable"
"""Without it, a JVM that cannot use the archive would say so in its output."""

_failed: set[Path] = set()  # directories whose archives this process could not write


def write_archive(archive: Path) -> tuple[str, ...]:
    """Return the options of a program that writes its classes to a file when it ends, even by SIGTERM."""
    return (_QUIET, f"{WRITES}{archive}")


def read_archive(archive: Path) -> tuple[str, ...]:
    """Return the options of a program that takes its classes from a file; none if the file does not exist."""
    return (_QUIET, f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()


def directory_of_archives(parent: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return the directory with some archives for this machine's ``java``. The first time, ``make`` writes them.

    ``make`` gets an empty directory. If it fails, the returned directory does not exist. Several processes may call this
    at the same time: one of them calls ``make``, the others wait.
    """
    directory = parent / f"{name}-classes-{_key_of_java()}"
    if directory.exists() or directory in _failed:
        return directory
    with directory.with_name(f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=parent) as scratch:
                written = Path(scratch) / "archives"
                written.mkdir()
                try:
                    make(written)
                    written.rename(directory)
                except Exception:  # the tests only take longer without archives
                    _failed.add(directory)
    return directory


def _key_of_java() -> str:
    status = os.stat(os.path.realpath(shutil.which("java") or "java"))
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}"
