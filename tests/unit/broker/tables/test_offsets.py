import os
from pathlib import Path

from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.base.json_file import JsonFile
from rocketd.broker.tables.offsets import ConsumerOffsetManager
from rocketd.remoting.bodies.tables import ConsumerOffsetSerializeWrapper
from rocketd.store.base.filesystem import RealFileSystem


class OffsetsTests(SynchronousTestCase):
    def setUp(self):
        self.path = os.path.join(self.mktemp(), "consumerOffset.json")
        self.offsets = self.make()

    def make(self):
        offsets = ConsumerOffsetManager(JsonFile(self.path, ConsumerOffsetSerializeWrapper, RealFileSystem()))
        offsets.load()
        return offsets

    def commit(self, group, topic, queue_id, offset):
        self.offsets.commit("1.2.3.4:5", group, topic, queue_id, offset)

    def test_unknown_is_minus_one(self):
        self.commit("G", "T", 0, 5)
        self.assertEqual(self.offsets.query("G", "T", 0), 5)
        self.assertEqual(self.offsets.query("G", "T", 1), -1)
        self.assertEqual(self.offsets.query("H", "T", 0), -1)

    def test_decreased_offset_is_accepted_and_logged(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.commit("G", "T", 0, 5)
        self.commit("G", "T", 0, 5)
        self.commit("G", "T", 0, 6)
        self.assertEqual([e for e in events if e.get("old")], [])
        self.commit("G", "T", 0, 3)
        self.assertEqual(self.offsets.query("G", "T", 0), 3)
        (event,) = [e for e in events if e.get("old")]
        self.assertEqual((event["old"], event["offset"], event["client"]), (6, 3, "1.2.3.4:5"))

    def test_stored_in_apaches_form(self):
        self.commit("G", "T", 0, 5)
        self.commit("G", "T", 1, 7)
        self.offsets.persist()
        self.assertEqual(Path(self.path).read_text(), '{\n\t"offsetTable":{\n\t\t"T@G":{0:5,1:7\n\t\t}\n\t}\n}')
        self.assertEqual(self.make().query("G", "T", 1), 7)

    def test_not_written_without_a_change(self):
        self.commit("G", "T", 0, 5)
        self.offsets.persist()
        os.remove(self.path)
        self.offsets.persist()
        self.assertFalse(os.path.exists(self.path))
        self.commit("G", "T", 0, 5)
        self.offsets.persist()
        self.assertTrue(os.path.exists(self.path))

    def test_first_offset_of_a_queue_is_written_soon(self):
        """A kill before the timer's write must not make the group a new one."""
        self.commit("G", "T", 0, 5)
        self.commit("G", "T", 1, 7)
        self.commit("G", "T", 0, 6)
        self.assertEqual(self.make().snapshot().offset_table, {"T@G": {0: 5, 1: 7}})

    def test_groups_of_a_topic(self):
        self.commit("G", "T", 0, 1)
        self.commit("H", "T", 0, 1)
        self.commit("G", "%RETRY%G", 0, 1)
        self.assertEqual(self.offsets.groups_of("T"), {"G", "H"})

    def test_remove_group_takes_only_whole_names(self):
        for group in ("G", "GG", "XG"):
            self.commit(group, "T", 0, 1)
        self.offsets.remove_group("G")
        self.assertEqual(self.offsets.groups_of("T"), {"GG", "XG"})
        self.offsets.persist()
        self.assertEqual(self.make().groups_of("T"), {"GG", "XG"})

    def test_remove_topic_takes_only_whole_names(self):
        for topic in ("T", "TT", "%RETRY%T"):
            self.commit("G", topic, 0, 1)
        self.offsets.remove_topic("T")
        self.assertEqual(self.offsets.topics_of("G"), {"TT", "%RETRY%T"})

    def test_snapshot_does_not_change(self):
        self.commit("G", "T", 0, 1)
        snapshot = self.offsets.snapshot()
        self.commit("G", "T", 0, 2)
        self.assertEqual(snapshot.offset_table, {"T@G": {0: 1}})
