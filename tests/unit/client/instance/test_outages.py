"""One line in the log for the start and for the end of an outage of a broker, on a fake clock."""

from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.remoting.errors import RemotingSendRequestError
from tests.support.client_cluster import ClientTestCase

BOTH = {"a:10911", "b:10911"}


class OutageTests(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.cluster.queues = 8
        self.cluster.topics.add("%RETRY%cg")
        self.lines = []

        def observe(event):
            level = event["log_level"].name
            if level == "warn" or "answers again" in event["log_format"]:
                self.lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.failing = False
        self.consumer = PushConsumerEngine(self.client, "cg", self.take, options=ConsumerOptions(begin="earliest"))
        self.consumer.subscribe("T")
        self.result_of(self.consumer.start())

    async def take(self, message):
        if self.failing:
            raise KeyError

    def lose(self):
        """Lose the brokers, and the pulls under way."""
        self.cluster.down |= BOTH
        for address in BOTH:
            self.client.connection_lost(address)
        for address, _, held in list(self.cluster.held):
            if not held.called:
                held.errback(RemotingSendRequestError(address, "closed"))
        self.cluster.held.clear()

    def test_outage_of_broker_is_one_line_however_many_queues_fail(self):
        self.lose()
        self.clock.pump([0.1] * 600)
        self.assertEqual(len(self.lines), 2, self.lines)
        for address, line in zip(sorted(BOTH), sorted(self.lines), strict=True):
            self.assertRegex(line, rf"^broker {address} does not answer: pulling queue \d of T at [ab]: ")

    def test_end_of_outage_is_one_line_with_number_of_failures(self):
        self.lose()
        self.clock.pump([0.1] * 300)
        self.lines.clear()
        self.cluster.down.clear()
        self.clock.pump([0.1] * 100)
        self.assertEqual(len(self.lines), 2, self.lines)
        for address, line in zip(sorted(BOTH), sorted(self.lines), strict=True):
            self.assertRegex(line, rf"^broker {address} answers again after 3\d\.\d s; \d\d+ requests failed$")

    def test_next_outage_is_logged_again(self):
        for _ in range(2):
            self.lose()
            self.clock.pump([0.1] * 50)
            self.cluster.down.clear()
            self.clock.pump([0.1] * 50)
        self.assertEqual(len(self.lines), 8, self.lines)

    def test_refusal_is_not_an_outage(self):
        self.cluster.refusals[34, "a:10911"] = 1
        self.clock.advance(30)
        self.assertEqual(len(self.lines), 1)
        self.assertIn("heartbeat: a:10911 answers SYSTEM_ERROR", self.lines[0])

    def test_messages_that_cannot_be_given_back_add_no_lines(self):
        self.failing = True
        (queue, *_) = self.consumer.queues()
        address = f"{queue.broker_name}:10911"
        self.cluster.down |= BOTH
        self.cluster.deliver(address, [(b"x", "")] * 20, 0, queue_id=queue.queue_id)
        self.clock.pump([0.1] * 100)
        others = [line for line in self.lines if " failed on " not in line]  # these are the handler's own failures
        said = sorted(line.partition(": ")[0] for line in others)
        self.assertEqual(said, [f"broker {name} does not answer" for name in sorted(BOTH)])

    def test_broker_without_route_is_forgotten(self):
        self.lose()
        self.assertEqual(set(self.client.outages.begun), BOTH)
        self.cluster.brokers = ["b"]
        self.clock.pump([1] * 70)
        self.assertEqual(set(self.client.outages.begun), {"b:10911"})

    def test_offsets_that_cannot_be_stored_add_no_lines(self):
        (queue, *_) = self.consumer.queues()
        self.lose()
        self.lines.clear()
        self.consumer.offsets.update(self.consumer.assigned[queue].queue, 7, False)
        self.clock.pump([1] * 12)
        self.assertEqual(self.lines, [])

    def test_outage_ends_by_answers_only(self):
        self.lose()
        asking = Deferred.fromCoroutine(self.client.ask("a:10911", 34))
        self.failureResultOf(asking)
        self.assertIn("a:10911", self.client.outages.begun)
