"""Topics that the log has messages of, though the table lacks them."""

import os

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.implied_topics import LOOK_SECONDS, ImpliedTopics
from rocketd.broker.testing import SmallBroker
from rocketd.remoting.bodies import TopicConfig
from rocketd.store.testing import make_message


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

    def test_topic_with_later_messages_is_made_with_the_queues_of_the_log(self):
        self.change()
        self.put("Late", 2)
        self.implied.make()
        self.assertEqual(self.queues("Late"), (3, 3, 6))

    def test_topic_that_was_deleted_is_not(self):
        self.put("Gone")
        self.change()
        self.implied.make()
        self.assertIsNone(self.queues("Gone"))

    def test_table_that_was_never_changed_is_lost_so_all_are_made(self):
        self.put("Old")
        self.broker.clock.advance(1)
        self.implied.make()
        self.assertEqual(self.queues("Old"), (1, 1, 6))

    def test_topics_of_the_system_and_light_queues_are_not(self):
        for topic in ("rmq_sys_x", "%LMQ%x"):
            self.put(topic)
        self.implied.make()
        self.assertEqual([self.queues(topic) for topic in ("rmq_sys_x", "%LMQ%x")], [None, None])

    def test_known_topic_stays_as_it_is(self):
        self.broker.topics.update(TopicConfig("Known", 1, 1))
        self.put("Known", 5)
        self.implied.make()
        self.assertEqual(self.queues("Known"), (1, 1, 6))

    def test_requests_have_it_looked_for_once_a_second(self):
        self.change()
        self.implied.make_again()
        self.put("Late")
        self.implied.make_again()
        self.assertIsNone(self.queues("Late"))
        self.clock.advance(LOOK_SECONDS)
        self.implied.make_again()
        self.assertIsNotNone(self.queues("Late"))

    def test_slaves_own_changes_keep_the_time_of_the_masters(self):
        self.change()
        before = self.broker.topics.data_version
        self.broker.topics.follow_a_master()
        self.broker.clock.advance(9)
        self.broker.topics.create_topic_in_send_message_back("%RETRY%G", 1, 6, 0)
        after = self.broker.topics.data_version
        self.assertEqual((after.timestamp, after.counter), (before.timestamp, before.counter + 1))
