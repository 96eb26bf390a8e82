import os
import struct

from twisted.trial.unittest import SynchronousTestCase

from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.state.checkpoint import DispatchProgress, StoreCheckpoint


class RecordingDisk(RealFileSystem):
    """The real disk; records writes and syncs, and accepts at most `room` bytes of a write."""

    def __init__(self, room: int = 1 << 20) -> None:
        self.room = room
        self.calls: list[str] = []

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        self.calls.append(f"pwrite {len(data)} at {offset}")
        return super().pwrite(fd, data[: self.room], offset)

    def fdatasync(self, fd: int) -> None:
        self.calls.append("fdatasync")
        super().fdatasync(fd)


class StoreCheckpointTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.path = os.path.join(self.mktemp(), "store", "checkpoint")

    def written(self, data: bytes) -> StoreCheckpoint:
        os.makedirs(os.path.dirname(self.path))
        with open(self.path, "wb") as file:
            file.write(data)
        return StoreCheckpoint(self.path)

    def values(self, checkpoint: StoreCheckpoint) -> tuple[int, int, int]:
        return checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp

    def test_missing_file_reads_as_zeros_and_is_not_created(self) -> None:
        self.assertEqual(self.values(StoreCheckpoint(self.path)), (0, 0, 0))
        self.assertFalse(os.path.exists(os.path.dirname(self.path)))

    def test_short_file_is_padded_with_zeros(self) -> None:
        checkpoint = self.written(struct.pack(">qq", 1700000000123, 1700000000456)[:12])
        self.assertEqual(self.values(checkpoint), (1700000000123, 1700000000456 >> 32 << 32, 0))

    def test_empty_file(self) -> None:
        self.assertEqual(self.values(self.written(b"")), (0, 0, 0))

    def test_file_layout(self) -> None:
        checkpoint = StoreCheckpoint(self.path)
        checkpoint.physic_msg_timestamp = 0x0102030405060708
        checkpoint.logics_msg_timestamp = 0x1112131415161718
        checkpoint.index_msg_timestamp = 0x2122232425262728
        checkpoint.flush()
        with open(self.path, "rb") as file:
            data = file.read()
        expected = bytes(range(1, 9)) + bytes(range(0x11, 0x19)) + bytes(range(0x21, 0x29))
        self.assertEqual(data, expected.ljust(4096, b"\0"))

    def test_flushed_values_are_read_again(self) -> None:
        first = StoreCheckpoint(self.path)
        first.physic_msg_timestamp, first.logics_msg_timestamp, first.index_msg_timestamp = 5, 6, 7
        first.flush()
        second = StoreCheckpoint(self.path)
        self.assertEqual(self.values(second), (5, 6, 7))
        first.index_msg_timestamp = 8
        first.flush()
        second.load()
        self.assertEqual(self.values(second), (5, 6, 8))

    def test_flush_keeps_following_bytes_and_syncs(self) -> None:
        self.written(bytes(24) + b"x" * 4072)
        disk = RecordingDisk()
        StoreCheckpoint(self.path, disk).flush()
        self.assertEqual(disk.calls, ["pwrite 24 at 0", "pwrite 76 at 1024", "pwrite 36 at 2048", "fdatasync"])
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), bytes(24) + b"x" * 1000 + bytes(76) + b"x" * 948 + bytes(36) + b"x" * 2012)

    PROGRESS = DispatchProgress(900, 500, 400, 800, 700)

    def test_progress_is_read_again(self) -> None:
        first = StoreCheckpoint(self.path)
        first.physic_msg_timestamp = 5
        first.progress = self.PROGRESS
        first.flush()
        self.assertEqual(StoreCheckpoint(self.path).progress, self.PROGRESS)
        first.progress = self.PROGRESS._replace(dispatched=880)
        first.note_progress()
        self.assertEqual(StoreCheckpoint(self.path).progress, first.progress)
        first.progress = None
        first.flush()
        self.assertIsNone(StoreCheckpoint(self.path).progress)

    def test_note_progress_keeps_timestamps_and_does_not_sync(self) -> None:
        first = StoreCheckpoint(self.path)
        first.physic_msg_timestamp = 5
        first.flush()
        disk = RecordingDisk()
        second = StoreCheckpoint(self.path, disk)
        second.physic_msg_timestamp = 6
        second.progress = self.PROGRESS
        second.note_progress()
        self.assertEqual(disk.calls, ["pwrite 76 at 1024"])
        third = StoreCheckpoint(self.path)
        self.assertEqual((third.physic_msg_timestamp, third.progress), (5, self.PROGRESS))

    def test_damaged_or_outdated_progress_is_ignored(self) -> None:
        first = StoreCheckpoint(self.path)
        first.progress = self.PROGRESS
        first.flush()
        with open(self.path, "rb") as file:
            good = file.read()
        for position in (0, 16, 1024, 1050, 1099):
            damaged = bytearray(good)
            damaged[position + 7 if position < 24 else position] ^= 1
            with open(self.path, "wb") as file:
                file.write(damaged)
            self.assertIsNone(StoreCheckpoint(self.path).progress, position)

    def test_files_noted_ends_if_timestamps_change(self) -> None:
        first = StoreCheckpoint(self.path)
        self.assertFalse(first.files_noted)
        first.physic_msg_timestamp = 5
        first.files_noted = True
        first.note_progress()
        self.assertTrue(StoreCheckpoint(self.path).files_noted)
        first.flush()
        self.assertTrue(StoreCheckpoint(self.path).files_noted)
        with open(self.path, "rb") as file:
            good = file.read()
        for position in (7, 2048, 2060, 2083):
            damaged = bytearray(good)
            damaged[position] ^= 1
            with open(self.path, "wb") as file:
                file.write(damaged)
            self.assertFalse(StoreCheckpoint(self.path).files_noted, position)
        first.files_noted = False
        first.flush()
        self.assertFalse(StoreCheckpoint(self.path).files_noted)

    def test_partial_write_is_an_error(self) -> None:
        disk = RecordingDisk(room=10)
        self.assertRaises(OSError, StoreCheckpoint(self.path, disk).flush)
        self.assertEqual(disk.calls, ["pwrite 24 at 0"])

    def test_min_timestamp_is_three_seconds_before_the_older(self) -> None:
        checkpoint = StoreCheckpoint(self.path)
        checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp = 10_000, 12_000
        self.assertEqual(checkpoint.min_timestamp(), 7_000)
        checkpoint.physic_msg_timestamp = 20_000
        self.assertEqual(checkpoint.min_timestamp(), 9_000)

    def test_min_timestamp_is_never_negative(self) -> None:
        checkpoint = StoreCheckpoint(self.path)
        checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp = 2_999, 12_000
        self.assertEqual(checkpoint.min_timestamp(), 0)

    def test_min_timestamp_with_index(self) -> None:
        checkpoint = StoreCheckpoint(self.path)
        checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = 10_000
        self.assertEqual(checkpoint.min_timestamp_with_index(), 0)
        checkpoint.index_msg_timestamp = 6_999
        self.assertEqual(checkpoint.min_timestamp_with_index(), 6_999)
        checkpoint.index_msg_timestamp = 7_001
        self.assertEqual(checkpoint.min_timestamp_with_index(), 7_000)
