import os
import time

from twisted.trial import unittest

from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.cluster_output import wait_until_processed
from rocketd.spark.sink.effectively_once.staging import Staging, check_reached, mark_folder
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.message_output import Receipt
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.plain import AtLeastOnce
from rocketd.spark.sink.problems import SinkError

A, B = Queue("T", "a", 0), Queue("T", "b", 0)


class StagingTests(unittest.TestCase):
    def setUp(self):
        self.root = os.path.abspath(self.mktemp())
        self.folder = os.path.join(self.root, "s")
        self.staging = Staging(self.folder)

    def test_messages_come_back_as_they_were(self):
        messages = [
            Outgoing("T", b"", b"\xff\0", 7, -1, True, "key", 3, "b"),
            *(Outgoing("U", b"b" * 3000, b"a\x01%d" % n) for n in range(3000)),
        ]
        staged = self.staging.write("5", "0-0", messages)
        self.assertEqual((staged.rows, staged.topics), (3001, {"T", "U"}))
        self.assertTrue(staged.name.startswith("5/0-0-"))
        self.assertEqual(list(self.staging.read(staged.name)), messages)
        other = self.staging.write("5", "0-0", messages)
        self.assertNotEqual(other.name, staged.name)

    def test_failed_attempt_leaves_no_files(self):
        def messages():
            yield Outgoing("T", b"", b"")
            raise ValueError

        self.assertRaises(ValueError, self.staging.write, "5", "0-0", messages())
        self.assertEqual(os.listdir(os.path.join(self.folder, "5")), [])

    def test_truncated_staged_file_raises(self):
        staged = self.staging.write("5", "0-0", [Outgoing("T", b"b" * 10_000, b"")])
        path = os.path.join(self.folder, staged.name)
        os.truncate(path, os.path.getsize(path) // 2)
        with self.assertRaisesRegex(SinkError, "cannot be read"):
            list(self.staging.read(staged.name))

    def test_folder_not_shared_with_executors_raises(self):
        mark = mark_folder(self.root)
        self.assertEqual(mark_folder(self.root), mark)
        check_reached(self.root, mark, "here")
        elsewhere = os.path.abspath(self.mktemp())
        self.assertIn("on there is not that of the driver", str(self.reached(elsewhere, mark)))
        mark_folder(elsewhere)
        self.assertIn("stagingDir has to be a folder that", str(self.reached(elsewhere, mark)))

    def reached(self, folder, mark):
        return self.assertRaises(SinkError, check_reached, folder, mark, "there")

    def test_finished_and_abandoned_batches_are_swept(self):
        for batch in ("1", "2", "3", "job-x"):
            self.staging.write(batch, "0-0", [Outgoing("T", b"", b"")])
        with open(os.path.join(self.folder, "ledger"), "w"):
            pass
        now = time.time()
        self.staging.sweep(lambda batch: batch == "1", lambda batch: batch == "3", now)
        self.assertEqual(sorted(os.listdir(self.folder)), ["2", "3", "job-x", "ledger"])
        self.staging.sweep(lambda batch: False, lambda batch: batch == "3", now + 8 * 86400)
        self.assertEqual(sorted(os.listdir(self.folder)), ["3", "ledger"])


class SettlingTests(unittest.TestCase):
    def wait(self, infos):
        """How long it waits while a broker tells this, one after the other, and how many of them it has taken."""
        now = [0.0]
        told = iter(infos)
        taken = []

        def ask():
            taken.append(next(told))
            return taken[-1]

        def sleep(seconds):
            now[0] += seconds

        wait_until_processed(ask, lambda: now[0], sleep)
        return round(now[0], 1), len(taken)

    @staticmethod
    def info(pooled=0, head_ms=0, reach=1000, behind=0):
        return {
            "sendThreadPoolQueueSize": str(pooled),
            "sendThreadPoolQueueHeadWaitTimeMills": str(head_ms),
            "commitLogMaxOffset": str(reach),
            "dispatchBehindBytes": str(behind),
        }

    def test_an_idle_broker_is_given_a_moment(self):
        self.assertEqual(self.wait([self.info()] * 20), (0.5, 6))

    def test_settling_waits_only_for_requests_from_before(self):
        # The oldest waits since long before for two seconds, then those that came after the beginning go on waiting.
        old = [self.info(5, 10_000)] * 20
        self.assertEqual(self.wait([*old, *[self.info(9, 1900)] * 5]), (2.0, 21))

    def test_settling_waits_for_queues_up_to_end_of_log(self):
        # The log keeps growing; its queues need only reach the end that it had at the start.
        growing = [self.info(0, 0, 1000 + 100 * n, 500) for n in range(30)]
        self.assertEqual(self.wait(growing), (1.0, 11))

    def test_settling_does_not_wait_for_a_shortened_log(self):
        """A killed broker may lose the end of its log, which then never reaches its former length."""
        killed = [self.info(0, 0, 1000, 500)] * 7
        self.assertEqual(self.wait([*killed, self.info(0, 0, 800, 300), *[self.info(0, 0, 800)] * 5]), (0.8, 9))

    def test_settling_without_figures_waits_some_seconds(self):
        self.assertEqual(self.wait([{}]), (5.0, 1))


class FailingBrokers:
    """Broker b refuses so many sends, in a way that passes or does not."""

    def __init__(self, refusals, queues=(A, B), **error):
        self.refusals = refusals
        self.error = error
        self.topic_queues = queues
        self.logs = {A: [], B: []}

    def queues(self, topic):
        return list(self.topic_queues)

    def send(self, parcels):
        return {queue: self._one(queue, parcel) for queue, parcel in parcels.items()}

    def _one(self, queue, parcel):
        if queue.broker == "b" and self.refusals:
            self.refusals -= 1
            return ClusterError("away", **self.error)
        self.logs[queue] += [message.body for message in parcel]
        return Receipt(0, 0)


class PlainTests(unittest.TestCase):
    options = WriteOptions.parse({"namesrv": "n:1", "topic": "T", "batchBytes": "1024", "retries": "2"})

    def deliver(self, brokers, **more):
        pauses = []
        plain = AtLeastOnce(self.options, brokers, wait=pauses.append)
        plain.deliver(Outgoing("T", b"%d" % n, b"p" * 200, **more) for n in range(30))
        self.assertEqual(plain.sent, 30)
        return pauses

    def test_refused_messages_go_to_another_broker(self):
        brokers = FailingBrokers(1000, retriable=True)
        self.assertEqual(self.deliver(brokers), [])
        self.assertEqual(sorted(brokers.logs[A], key=int), [b"%d" % n for n in range(30)])

    def test_keyed_messages_wait_for_their_broker(self):
        brokers = FailingBrokers(2, retriable=True, doubtful=True)
        self.assertEqual(len(self.deliver(brokers, key="a")), 2)
        self.assertEqual(brokers.logs, {A: [], B: [b"%d" % n for n in range(30)]})

    def test_delivery_fails_after_its_retries(self):
        self.assertRaises(ClusterError, self.deliver, FailingBrokers(3, retriable=True), key="a")
        self.assertRaises(ClusterError, self.deliver, FailingBrokers(3, (B,), retriable=True))
        self.assertRaises(ClusterError, self.deliver, FailingBrokers(1))
