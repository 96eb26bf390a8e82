"""Named log files: which line goes where, levels, rotation, JSON, a queue that is full, a directory that cannot be used."""

import json
import os
import threading
import time
from importlib.util import find_spec

from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.logs.files import NAMES, LogDirectoryError, LogFiles, name_of
from rocketd.common.logs.settings import LogConfig


class LogFilesTests(SynchronousTestCase):
    def setUp(self):
        self.directory = os.path.abspath(self.mktemp())

    def log(self, *events, **settings):
        """Log (namespace, level, text) and return the names and lines of the files."""
        files = LogFiles(LogConfig(log_dir=self.directory, **settings))
        files.startService()
        for namespace, level, text in events:
            getattr(Logger(namespace), level)("{text}", text=text)
        files.stopService()
        return self.read()

    def read(self):
        found = {}
        for name in sorted(os.listdir(self.directory)):
            with open(os.path.join(self.directory, name)) as file:
                found[name] = file.read().splitlines()
        return found

    def test_subsystems_have_separate_files(self):
        found = self.log(
            ("rocketd.store.log.flush", "info", "flushed"),
            ("rocketd.broker.service.Broker", "info", "served"),
            ("rocketd.broker.base.watermark.WaterMarks", "info", "waiting"),
            ("rocketd.remoting.serving.connection", "warn", "closed"),
            ("twisted.web", "info", "elsewhere"),
        )
        self.assertEqual(
            {name: lines[0].rsplit(" ", 1)[1] for name, lines in found.items()},
            {
                "store.log": "flushed",
                "broker.log": "served",
                "watermark.log": "waiting",
                "remoting.log": "closed",
                "other.log": "elsewhere",
            },
        )

    def test_reopen_writes_to_a_new_file_after_a_rename(self):
        files = LogFiles(LogConfig(log_dir=self.directory))
        files.startService()
        log = Logger("rocketd.store")
        path = os.path.join(self.directory, "store.log")
        log.info("first")
        while not os.path.exists(path):
            time.sleep(0.01)
        os.rename(path, path + ".old")
        files.reopen()
        log.info("second")
        files.stopService()
        found = {name: [line.rsplit(" ", 1)[1] for line in lines] for name, lines in self.read().items()}
        self.assertEqual(found, {"store.log": ["second"], "store.log.old": ["first"]})

    def test_lines_below_level_are_dropped(self):
        found = self.log(("rocketd.store", "info", "no"), ("rocketd.store", "error", "yes"), log_level="warn")
        self.assertEqual([line.rsplit(" ", 1)[1] for line in found["store.log"]], ["yes"])

    def test_json_lines_have_time_level_logger_message_and_traceback(self):
        files = LogFiles(LogConfig(log_dir=self.directory, log_format="json"))
        files.startService()
        Logger("rocketd.store").warn("{count} files", count=3)
        try:
            raise ValueError("broken")
        except ValueError:
            Logger("rocketd.store").failure("failed", Failure())
        files.stopService()
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)
        first, second = [json.loads(line) for line in self.read()["store.log"]]
        self.assertEqual((first["level"], first["logger"], first["message"]), ("warn", "rocketd.store", "3 files"))
        self.assertRegex(first["time"], r"^\d{4}-\d\d-\d\dT")
        self.assertIn("ValueError: broken", second["traceback"])

    def test_files_rotate_by_size_and_the_oldest_go(self):
        events = [("rocketd.store", "info", f"{number:0100}") for number in range(200)]
        found = self.log(*events, log_file_size=4096, log_file_count=2)
        self.assertEqual(sorted(found), ["store.log", "store.log.1", "store.log.2"])
        self.assertTrue(found["store.log"][-1].endswith(f"{199:0100}"))
        self.assertLessEqual(max(sum(len(line) + 1 for line in lines) for lines in found.values()), 4096 + 300)

    def test_lines_beyond_the_queue_are_counted(self):
        gate, begun = threading.Event(), threading.Event()

        class SlowFiles(LogFiles):
            def _write(self, line):
                begun.set()
                gate.wait(60)
                super()._write(line)

        files = SlowFiles(LogConfig(log_dir=self.directory), limit=2)
        files.startService()
        log = Logger("rocketd.store")
        log.info("0")
        self.assertTrue(begun.wait(60))
        for number in range(1, 8):
            log.info(str(number))
        gate.set()
        files.stopService()
        text = "\n".join(self.read()["store.log"])
        self.assertIn("(5 lines were dropped", text)

    def test_start_without_creatable_directory_names_it(self):
        with open(self.directory, "w"):
            pass
        error = self.assertRaises(LogDirectoryError, LogFiles(LogConfig(log_dir=self.directory)).startService)
        self.assertIn(f"logDir = {self.directory}", str(error))

    def test_each_named_logger_exists(self):
        for beginning, _ in NAMES:
            self.assertIsNotNone(find_spec(beginning), beginning)

    def test_file_names_by_namespace(self):
        for namespace, name in (
            ("rocketd.broker.transaction.check", "transaction"),
            ("rocketd.broker.pull.slow_readers.SlowReaders", "protection"),
            ("rocketd.broker.replication.as_slave.log_follower", "replication"),
            ("rocketd.broker.tables.filters.consumer_filters.ConsumerFilters", "filter"),
            ("rocketd.namesrv.service", "namesrv"),
            ("", "other"),
        ):
            self.assertEqual(name_of(namespace), name)
