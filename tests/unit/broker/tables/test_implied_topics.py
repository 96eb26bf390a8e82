"""Topics that the log has messages of, though the table lacks them."""

import os
from types import SimpleNamespace

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.admin.changes import AdminBrokerProcessor
from rocketd.broker.tables.implied_topics import LOOK_SECONDS, ImpliedTopics
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.testing import make_message
from tests.support.broker import RecordingConnection, SmallBroker


class ImpliedTopicsTests(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.clock = Clock()
        self.implied = ImpliedTopics(self.broker, self.clock.seconds)

    def put(self, topic, queue_id=0):
        self.broker.store.put_messages([make_message(b"x", topic=topic, queue_id=queue_id)])
        self.broker.settle()

    def change(self):
        """Change the table a second later."""
        self.broker.clock.advance(1)
        self.broker.topics.update(TopicConfig("Other", 1, 1))
        self.broker.clock.advance(1)

    def queues(self, topic):
        config = self.broker.topics.select(topic)
        return None if config is None else (config.read_queue_nums, config.write_queue_nums, config.perm)

    def test_topic_with_later_messages_is_created_with_queues_of_log(self):
        self.change()
        self.put("Late", 2)
        self.implied.make()
        self.assertEqual(self.queues("Late"), (3, 3, 6))

    def test_deleted_topic_is_not_created(self):
        self.put("Gone")
        self.change()
        self.implied.make()
        self.assertIsNone(self.queues("Gone"))

    def test_topic_of_recorded_deletion_is_not_created(self):
        """Its queues are left if the deletion was cut short, and the table was never changed."""
        self.put("Gone")
        self.broker.store._note_deletion("Gone")
        self.implied.make()
        self.assertIsNone(self.queues("Gone"))

    def test_topic_under_deletion_is_not_created(self):
        """A request may name it before the store has recorded its deletion."""
        self.broker.topics.update(TopicConfig("Gone", 1, 1))
        self.put("Gone")
        self.broker.dispatcher.delay = True
        context = SimpleNamespace(connection=RecordingConnection(), answer=lambda response: None)
        request = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})
        AdminBrokerProcessor(self.broker).process(request, context)
        self.assertFalse(self.broker.store.was_deleted("Gone", 0, self.broker.now_ms()))
        self.implied.make()
        self.assertIsNone(self.queues("Gone"))
        self.broker.dispatcher.run()
        self.assertTrue(self.broker.store.was_deleted("Gone", 0, self.broker.now_ms()))
        self.implied.make()
        self.assertIsNone(self.queues("Gone"))

    def test_only_retry_topics_are_created_without_automatic_creation(self):
        self.broker.settings.broker.auto_create_topic_enable = False
        for topic in ("Late", "%RETRY%G", "%DLQ%G"):
            self.put(topic)
        self.implied.make()
        created = [self.queues(topic) is not None for topic in ("Late", "%RETRY%G", "%DLQ%G")]
        self.assertEqual(created, [False, True, True])

    def test_topics_are_created_for_unchanged_table(self):
        self.put("Old")
        self.broker.clock.advance(1)
        self.implied.make()
        self.assertEqual(self.queues("Old"), (1, 1, 6))

    def test_system_topics_and_light_queues_are_not_created(self):
        for topic in ("rmq_sys_x", "%LMQ%x"):
            self.put(topic)
        self.implied.make()
        self.assertEqual([self.queues(topic) for topic in ("rmq_sys_x", "%LMQ%x")], [None, None])

    def test_known_topic_is_unchanged(self):
        self.broker.topics.update(TopicConfig("Known", 1, 1))
        self.put("Known", 5)
        self.implied.make()
        self.assertEqual(self.queues("Known"), (1, 1, 6))

    def test_lookup_by_requests_runs_once_a_second(self):
        self.change()
        self.implied.make_again()
        self.put("Late")
        self.implied.make_again()
        self.assertIsNone(self.queues("Late"))
        self.clock.advance(LOOK_SECONDS)
        self.implied.make_again()
        self.assertIsNotNone(self.queues("Late"))

    def test_slave_changes_keep_timestamp_of_master_table(self):
        self.change()
        before = self.broker.topics.data_version
        self.broker.topics.follow_a_master()
        self.broker.clock.advance(9)
        self.broker.topics.create_topic_in_send_message_back("%RETRY%G", 1, 6, 0)
        after = self.broker.topics.data_version
        self.assertEqual((after.timestamp, after.counter), (before.timestamp, before.counter + 1))
