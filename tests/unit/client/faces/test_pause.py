"""The pause of queues through a face, against scripted brokers, on a fake clock."""

from rocketd.client import LitePullConsumer
from rocketd.client.errors import UsageError
from rocketd.remoting.bodies.tables import MessageQueue
from tests.support.client_cluster import ClientTestCase

A = MessageQueue("T", "a", 0)
FOREIGN = MessageQueue("T", "a", 9)


class PauseTests(ClientTestCase):
    def consumer(self):
        consumer = LitePullConsumer("cg", topics="T", begin="earliest")
        consumer._life.begin()
        consumer._running = consumer._make_engine(self.client, None)
        self.result_of(consumer._running.start())
        return consumer

    def test_single_queue_is_refused_with_the_right_call(self):
        consumer = self.consumer()
        for method in ("pause", "unpause"):
            error = self.assertRaises(UsageError, getattr(consumer, method), A)
            self.assertEqual(str(error), f"{method} takes several queues: for one, {method}([queue])")

    def test_pause_of_a_queue_not_read_here_is_refused_and_pauses_none(self):
        consumer = self.consumer()
        error = self.assertRaises(UsageError, consumer.pause, [A, FOREIGN])
        self.assertIn("queue 9 of T at a is not read by this consumer", str(error))
        self.assertFalse(any(assigned.paused for assigned in consumer._running.assigned.values()))
        consumer.pause(iter([A]))
        self.assertEqual([each.queue for each in consumer._running.assigned.values() if each.paused], [A])

    def test_unpause_of_a_queue_given_up_does_nothing(self):
        self.consumer().unpause([FOREIGN])
