"""The journal of a table: kills between all writes, torn lines, and files of other programs."""

import os
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.json_file import JsonFile
from rocketd.remoting.bodies.tables import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.table_journal import MIN_LIMIT
from rocketd.testing.simulated.memory_disk import MemoryDisk
from rocketd.testing.simulated.virtual_time import VirtualTime


class KilledAnywhere(RealFileSystem):
    """Keeps the files of a directory as a kill would leave them before, and in the middle of, each change."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.states = []

    def keep(self):
        self.states.append({path.name: path.read_bytes() for path in self.directory.iterdir()})

    def write_file(self, path, data):
        for part in (data[:0], data[: len(data) // 2], data[:-1]):
            self.keep()
            super().write_file(path, part)
        self.keep()
        super().write_file(path, data)

    def pwrite(self, fd, data, offset):
        self.keep()
        return super().pwrite(fd, data[: len(data) // 2 + 1], offset)

    def fdatasync(self, fd):
        self.keep()
        super().fdatasync(fd)

    def rename(self, source, target):
        self.keep()
        super().rename(source, target)

    def remove(self, path):
        self.keep()
        super().remove(path)

    def sync_dir(self, path):
        self.keep()
        super().sync_dir(path)


class Table:
    """A table in memory and its file."""

    def __init__(self, path, file_system):
        self.file = JsonFile(path, TopicConfigSerializeWrapper, file_system)
        self.file.keep_texts()
        self.topics = {}
        self.added = []
        self.number = 0

    def put(self, name, queues=4):
        self.topics[name] = TopicConfig(name, queues, queues)
        self.added.append(name)
        self.number += 1

    def delete(self, name):
        del self.topics[name]
        self.added.append(None)
        self.number += 1

    def content(self):
        return TopicConfigSerializeWrapper(dict(self.topics), DataVersion(1_000, self.number))

    def save(self):
        self.file.save(lambda: (self.number, self.content()))

    def append(self):
        def changes(since):
            names = self.added[since:]
            if None in names:
                return None
            return self.number, TopicConfigSerializeWrapper(
                {name: self.topics[name] for name in names}, DataVersion(1_000, self.number)
            )

        self.file.append(changes, lambda: (self.number, self.content()))


class TableJournalTests(SynchronousTestCase):
    def setUp(self):
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.path = os.path.join(self.directory, "topics.json")
        self.journal = Path(f"{self.path}.journal")

    def table(self, file_system=None):
        return Table(self.path, file_system or RealFileSystem())

    def load(self, path=None, file_system=None):
        return JsonFile(path or self.path, TopicConfigSerializeWrapper, file_system or RealFileSystem()).load()

    def steps(self, table):
        """Change and store a table in all ways. Yield after each step that has stored everything."""
        for name in ("Kept", "Deleted", "Changed"):
            table.put(name)
        table.append()
        yield
        table.put("Deleted2")
        table.append()
        yield
        table.put("Changed", 8)
        table.put("New")
        table.append()
        yield
        table.delete("Deleted")
        table.append()
        yield
        table.put("New2")
        table.append()
        yield
        table.delete("Deleted2")
        table.save()
        yield
        table.put("New3")
        table.append()
        yield
        table.save()
        yield
        table.put("Changed", 16)
        table.append()
        yield

    def test_kill_at_any_moment_leaves_the_state_before_or_after_the_change(self):
        disk = KilledAnywhere(self.directory)
        table = self.table(disk)
        before, looked_at, journals = None, 0, 0
        for step, _ in enumerate(self.steps(table)):
            after = table.content()
            disk.keep()
            for files in disk.states[looked_at:]:
                copy = Path(self.mktemp())
                copy.mkdir()
                for name, content in files.items():
                    (copy / name).write_bytes(content)
                file = JsonFile(str(copy / "topics.json"), TopicConfigSerializeWrapper, RealFileSystem())
                self.assertIn(file.load(), (before, after), f"step {step}: {sorted(files)}")
                journals += file.has_journal
            looked_at = len(disk.states)
            self.assertEqual(self.load(), after)
            before = after
        self.assertGreater(journals, 10)

    def test_power_cut_keeps_what_was_stored(self):
        disk = MemoryDisk(VirtualTime())
        self.addCleanup(disk.close_all)
        self.path = "/store/config/topics.json"
        table = self.table(disk)
        for _ in self.steps(table):
            left = disk.survivors(power_cut=True)
            self.assertEqual(self.load(file_system=left), table.content())
            left.close_all()

    def journaled(self):
        """Return a table with one topic in the file, and one in the journal."""
        table = self.table()
        table.put("InFile")
        table.save()
        table.put("InJournal")
        table.append()
        self.assertEqual(len(self.journal.read_bytes().splitlines()), 1)
        return table

    def names(self):
        return set(self.load().topic_config_table)

    def test_change_is_added_to_the_journal_and_the_file_stays(self):
        table = self.journaled()
        size, content = self.journal.stat().st_size, Path(self.path).read_bytes()
        for number in range(100):
            table.put(f"T{number}")
        table.append()
        table.put("Last")
        table.append()
        self.assertEqual(Path(self.path).read_bytes(), content)
        self.assertEqual(len(self.journal.read_bytes().splitlines()), 3)
        self.assertLess(len(self.journal.read_bytes().splitlines()[-1]), size + 10)
        self.assertEqual(self.load(), table.content())
        table.save()
        self.assertFalse(self.journal.exists())
        self.assertEqual(self.load(), table.content())

    def test_journal_of_another_file_content_is_ignored(self):
        table = self.journaled()
        content, journal = Path(self.path).read_bytes(), self.journal.read_bytes()
        table.delete("InJournal")
        table.append()
        # Older than the file: it was left by a kill between the write of the file and its removal.
        self.journal.write_bytes(journal)
        self.assertEqual(self.names(), {"InFile"})
        # Apache's broker has written the file since.
        self.path, apaches = os.path.join(self.directory, "apache.json"), content.replace(b"1000", b"2000")
        self.journal = Path(f"{self.path}.journal")
        Path(self.path).write_bytes(apaches)
        self.journal.write_bytes(journal)
        self.assertEqual(self.names(), {"InFile"})
        Path(self.path).write_bytes(content)
        self.assertEqual(self.names(), {"InFile", "InJournal"})

    def test_ignored_journal_is_never_continued(self):
        self.journaled()
        Path(self.path).write_bytes(Path(self.path).read_bytes() + b"\n")
        table = self.table()
        table.put("New")
        table.append()
        self.assertFalse(self.journal.exists())
        table.put("New2")
        table.append()
        self.assertEqual(self.names(), {"New", "New2"})

    def test_torn_line_and_lines_after_it_are_ignored(self):
        table = self.journaled()
        table.put("Torn")
        table.append()
        table.put("Behind")
        table.append()
        first, second, third = self.journal.read_bytes().splitlines(keepends=True)
        for torn in (b"", second[:-1], second[:50], second.replace(b"Torn", b"Turn"), b"\x00" * len(second)):
            self.journal.write_bytes(first + torn + third)
            self.assertEqual(self.names(), {"InFile", "InJournal"}, torn)

    def test_backup_gets_only_its_own_journal(self):
        self.journaled()
        os.rename(self.path, f"{self.path}.bak")
        self.assertEqual(self.names(), {"InFile", "InJournal"})
        Path(f"{self.path}.bak").write_bytes(b'{"topicConfigTable":{"Older":{"topicName":"Older"}}}')
        self.assertEqual(self.names(), {"Older"})

    def test_journal_longer_than_its_limit_is_replaced_by_the_file(self):
        table = self.table()
        files = 0
        for number in range(600):
            table.put(f"{number:0100}")
            table.append()
            if self.journal.exists():
                limit = max(MIN_LIMIT, os.path.getsize(self.path)) + 500
                self.assertLess(self.journal.stat().st_size, limit)
            else:
                files += 1
        self.assertEqual(files, 4)
        self.assertEqual(self.load(), table.content())

    def test_failed_append_is_repeated_as_a_write_of_the_file(self):
        class Full(RealFileSystem):
            full = False

            def pwrite(self, fd, data, offset):
                if self.full:
                    super().pwrite(fd, data[:20], offset)
                    raise OSError(28, "No space left on device")
                return super().pwrite(fd, data, offset)

        disk = Full()
        table = self.table(disk)
        for name in ("A", "B"):
            table.put(name)
            table.append()
        table.put("C")
        table.append()
        disk.full = True
        table.put("D")
        self.assertRaises(OSError, table.append)
        self.assertEqual(self.names(), {"A", "B", "C"})
        table.append()
        self.assertEqual(self.names(), {"A", "B", "C", "D"})
        self.assertFalse(self.journal.exists())
