"""Topics that the queues of a store imply, and the lines about those that no table knows."""

import os

from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.tables.missing_tables import implied_topics, warn_of_missing_tables
from rocketd.store.base.filesystem import RealFileSystem

QUEUES = [("A", 0), ("A", 3), ("B", 0), ("%LMQ%x", 0), ("SCHEDULE_TOPIC_XXXX", 17)]


class MissingTablesTests(SynchronousTestCase):
    def setUp(self):
        self.lines = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)
        root = os.path.abspath(self.mktemp())
        os.makedirs(root)
        self.paths = [os.path.join(root, name) for name in ("topics.json", "groups.json", "offsets.json")]

    def observe(self, event):
        if event.get("log_namespace") == "rocketd.broker.tables.missing_tables":
            self.lines.append(event["log_format"].format(**event))

    def warn(self, queues, known, there=()):
        for number in there:
            with open(self.paths[number], "w"):
                pass
        self.lines.clear()
        warn_of_missing_tables(RealFileSystem(), self.paths[0], self.paths[1:], queues, known.__contains__)
        return self.lines

    def test_implied_topics_have_queue_counts(self):
        self.assertEqual(implied_topics(QUEUES), {"A": 4, "B": 1})

    def test_store_without_messages_gives_no_warning(self):
        self.assertEqual(self.warn([], set()), [])
        self.assertEqual(self.warn(QUEUES[3:], set()), [])

    def test_missing_tables_are_named_with_topics(self):
        first, second = self.warn(QUEUES, set())
        self.assertIn(
            "messages of 2 topics, but "
            + " and ".join(self.paths)
            + " is missing: 2 topics have lost their settings, and",
            first,
        )
        self.assertIn("2 topics have messages in the store, but no entry in", second)
        self.assertIn(": A (4 queues), B (1 queues); a master", second)

    def test_missing_groups_table_warns_if_groups_existed(self):
        self.assertEqual(self.warn(QUEUES, {"A", "B"}, there=[0]), [])
        (line,) = self.warn([*QUEUES, ("%RETRY%G", 0)], {"A", "B", "%RETRY%G"}, there=[0, 1])
        self.assertIn(f"but {self.paths[2]} is missing: consumer groups have lost their settings or offsets", line)

    def test_topics_without_an_entry(self):
        (line,) = self.warn([(f"T{n}", 0) for n in range(8)], {"T0"}, there=[0])
        self.assertIn("7 topics have messages", line)
        self.assertIn("T5 (1 queues) and 2 more", line)
