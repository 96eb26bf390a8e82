"""The crash loop for a bounded time; `python -m tests.crash` runs it for as long as one likes."""

import os
import shutil
from pathlib import Path
from random import Random, SystemRandom

import pytest

from tests.crash import recording
from tests.crash.loop import FLUSHES, MODES, CrashLoop
from tests.crash.power_cut import cut_power
from tests.crash.recording import RecordingFileSystem, read_journal

SECONDS = float(os.environ.get("ROCKETD_CRASH_SECONDS", "15"))
KILLS = 3
COMBINATIONS = [(mode, flush) for mode in MODES for flush in FLUSHES]
SEED = int(os.environ.get("ROCKETD_CRASH_SEED", "0")) or SystemRandom().randrange(1 << 32)


@pytest.mark.timeout(SECONDS * 2 + 120)
@pytest.mark.parametrize(("mode", "flush"), COMBINATIONS)
def test_crashes_lose_no_acknowledged_message(mode, flush, tmp_path):
    print(f"python -m tests.crash --mode {mode} --flush {flush} --seed {SEED}")
    loop = CrashLoop(tmp_path, mode, flush, SEED)
    loop.run(SECONDS, KILLS)
    assert loop.kills >= KILLS
    assert loop.checked > 0


class Disk:
    """A recorded store of files, and its outcomes after power cuts."""

    def __init__(self, directory: Path) -> None:
        self.root, self._shadow = directory / "store", directory / "shadow"
        self.root.mkdir(exist_ok=True)
        self._copy = directory / "copy"
        self.fs = RecordingFileSystem(str(self.root), str(self._shadow))

    def path(self, name: str) -> str:
        return str(self.root / name)

    def outcomes(self) -> set[tuple[tuple[str, bytes], ...]]:
        """Files by name as each of many power cuts leaves them."""
        found = set()
        os.rename(self.root, self._copy)
        for seed in range(200):
            # Hard links, for an inode tells which file it is.
            for directory, _, names in os.walk(self._copy):
                target = self.root / os.path.relpath(directory, self._copy)
                target.mkdir()
                for name in names:
                    os.link(os.path.join(directory, name), target / name)
            cut_power(self.root, self._shadow, Random(seed))
            files = [path for path in sorted(self.root.rglob("*")) if path.is_file()]
            found.add(tuple((str(path.relative_to(self.root)), path.read_bytes()) for path in files))
            for path in files:
                path.unlink()
            for path in sorted((path for path in self.root.rglob("*")), reverse=True):
                path.rmdir()
            self.root.rmdir()
        os.rename(self._copy, self.root)
        return found


def test_power_cut_loses_unsynced_bytes(tmp_path):
    disk = Disk(tmp_path)
    fd = disk.fs.open(disk.path("log"), 8192)
    mapping = disk.fs.map(fd, 8192, True)
    disk.fs.pwrite(fd, b"first", 0)
    disk.fs.fdatasync(fd)
    disk.fs.sync_dir(str(disk.root))
    disk.fs.pwrite(fd, b"other", 0)
    mapping[4096:4100] = b"page"
    pages = {(content[:5], content[4096:4100]) for ((_, content),) in disk.outcomes()}
    assert pages == {(one, two) for one in (b"first", b"other") for two in (bytes(4), b"page")}


def test_power_cut_keeps_synced_bytes(tmp_path):
    disk = Disk(tmp_path)
    disk.fs.makedirs(disk.path("queue"))
    fd = disk.fs.open(disk.path("queue/0"), 5000)
    disk.fs.pwrite(fd, b"x" * 5000, 0)
    disk.fs.fdatasync(fd)
    disk.fs.sync_dir(disk.path("queue"))
    disk.fs.sync_dir(str(disk.root))
    assert disk.outcomes() == {(("queue/0", b"x" * 5000),)}


def test_power_cut_loses_unsynced_names_and_lengths(tmp_path):
    disk = Disk(tmp_path)
    fd = disk.fs.open(disk.path("log"), 100)
    os.ftruncate(fd, 200)
    assert disk.outcomes() == {(), (("log", bytes(100)),), (("log", bytes(200)),)}


def test_power_cut_restores_removed_and_renamed_files(tmp_path):
    disk = Disk(tmp_path)
    disk.fs.write_file(disk.path("table"), b"old")
    disk.fs.sync_dir(str(disk.root))
    disk.fs.write_file(disk.path("new"), b"new")
    disk.fs.rename(disk.path("new"), disk.path("table"))
    disk.fs.remove(disk.path("table"))
    old, new = ("table", b"old"), ("new", b"new")
    assert disk.outcomes() == {(old,), (new, old), (("table", b"new"),), ()}


def test_files_from_before_the_recording_are_durable(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "old").write_bytes(b"old")
    disk = Disk(tmp_path)
    disk.fs.pwrite(disk.fs.open(disk.path("old")), b"new", 0)
    assert disk.outcomes() == {(("old", b"old"),), (("old", b"new"),)}


def test_process_end_makes_nothing_durable(tmp_path):
    first = Disk(tmp_path)
    fd = first.fs.open(first.path("log"), 3)
    first.fs.pwrite(fd, b"old", 0)
    first.fs.fdatasync(fd)
    first.fs.sync_dir(str(first.root))
    first.fs.pwrite(fd, b"new", 0)
    first.fs.write_file(first.path("table"), b"table")
    second = Disk(tmp_path)
    second.fs.sync_dir(str(second.root))
    table = ("table", b"table")
    assert second.outcomes() == {(("log", b"old"), table), (("log", b"new"), table)}
    third = Disk(tmp_path)
    third.fs.fdatasync(third.fs.open(third.path("log")))
    assert third.outcomes() == {(("log", b"new"), table)}


def test_next_process_records_last_changes_of_killed_one(tmp_path):
    first = Disk(tmp_path)
    first.fs.write_file(first.path("one"), b"1")
    first.fs.write_file(first.path("two"), b"2")
    first.fs.sync_dir(str(first.root))
    (first.root / "one").rename(first.root / "uno")
    (first.root / "three").write_bytes(b"")
    (first.root / "two").unlink()
    second = Disk(tmp_path)
    second.fs.sync_dir(str(second.root))
    assert second.outcomes() == {(("three", b""), ("uno", b"1"))}


def test_next_process_knows_file_with_reused_inode(tmp_path):
    first = Disk(tmp_path)
    for name in ("table", "wal"):
        first.fs.write_file(first.path(name), b"old")
    # Another library removes its file, and the inode is used for the next table.
    os.rename(first.path("wal"), first.path("table.tmp"))
    first.fs.write_file(first.path("table.tmp"), b"new")
    first.fs.rename(first.path("table.tmp"), first.path("table"))
    first.fs.sync_dir(str(first.root))
    second = Disk(tmp_path)
    fd = second.fs.open(second.path("table"))
    second.fs.pwrite(fd, b"NEW", 0)
    second.fs.fdatasync(fd)
    assert {dict(files)["table"] for files in second.outcomes()} == {b"NEW"}


def test_identity_changes_only_with_power_cut(tmp_path):
    first = Disk(tmp_path)
    first.fs.write_file(first.path("abort"), b"")
    identity = first.fs.identity(first.path("abort"))
    second = Disk(tmp_path)
    assert second.fs.identity(second.path("abort")) == identity
    shutil.rmtree(tmp_path / "shadow")
    third = Disk(tmp_path)
    assert third.fs.identity(third.path("abort")) != identity


def test_records_survive_kill_of_next_process_at_its_begin(tmp_path, monkeypatch):
    first = Disk(tmp_path)
    first.fs.write_file(first.path("table"), b"old")
    first.fs.sync_dir(str(first.root))
    journal = read_journal(str(tmp_path / "shadow"))

    def kill(_line):
        raise KeyboardInterrupt

    monkeypatch.setattr(recording, "_encoded", kill)
    with pytest.raises(KeyboardInterrupt):
        Disk(tmp_path)
    assert read_journal(str(tmp_path / "shadow")) == journal
