"""Facts in the errors of a send: the broker, whether a retry may succeed, and why there is no route."""

from twisted.internet.defer import Deferred, fail

from rocketd.client.errors import (
    BrokerError,
    BrokerUnreachableError,
    ConnectionLostError,
    NoRouteError,
    RequestTimeoutError,
    TooManyRequestsError,
    UnreachableError,
)
from rocketd.client.messages.message import Message
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.producer.producer import ProducerEngine
from rocketd.remoting.bodies.tables import BrokerData, MessageQueue, QueueData, TopicRouteData
from rocketd.remoting.errors import RemotingTooMuchRequestError
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.client_faults import FaultTestCase, FaultyCluster


class RoutedCluster(FaultyCluster):
    """All topics have ``route`` once it is set."""

    route = None

    def answer_105(self, address, request, fields):
        if self.route is None:
            return super().answer_105(address, request, fields)
        return RemotingCommand.response(0, body=self.route.encode(standard=True))


class NoRouteTests(FaultTestCase):
    cluster_type = RoutedCluster

    def failure(self, route):
        self.cluster.route = route
        self.client.routes.forget("T")
        error = self.failureResultOf(self.send(), BrokerUnreachableError).value
        self.assertIsInstance(error, NoRouteError)
        self.assertTrue(error.retriable)
        self.assertEqual(self.cluster.of(310), [])
        return str(error)

    def test_no_broker_takes_messages(self):
        brokers = [BrokerData("c", name, {0: f"{name}:10911"}) for name in "ab"]
        text = self.failure(TopicRouteData([QueueData("a", 1, 1, 4), QueueData("b", 1, 1, 0)], brokers))
        self.assertEqual(text, "no broker takes messages of topic T: a has permission 4, b has permission 0")

    def test_route_without_queues(self):
        brokers = [BrokerData("c", "a", {0: "a:10911"})]
        self.assertEqual(
            self.failure(TopicRouteData([], brokers)), "no broker takes messages of topic T: it has no queues"
        )

    def test_only_slaves_are_left(self):
        brokers = [BrokerData("c", "a", {1: "a:10912"})]
        self.assertIn("a has permission 6", self.failure(TopicRouteData([QueueData("a", 4, 4, 6)], brokers)))

    def test_missing_address_passes_after_route_refresh(self):
        self.failure(TopicRouteData([QueueData("a", 1, 1, 4)], [BrokerData("c", "a", {0: "a:10911"})]))
        self.cluster.route = None
        self.clock.advance(30)
        self.assertEqual(len(self.cluster.of(105)), 2)
        self.successResultOf(self.send())

    def test_broker_of_a_named_queue_is_registered_no_more(self):
        error = self.failureResultOf(self.send(queue=MessageQueue("T", "gone", 0)), BrokerUnreachableError).value
        self.assertEqual(error.broker, "gone")
        self.assertIn("no address of broker gone is known", str(error))

    def test_ordered_topic_with_unknown_broker_raises(self):
        route = TopicRouteData(
            [QueueData("a", 1, 1, 6)], [BrokerData("c", "a", {0: "a:10911"})], order_topic_conf="gone:2"
        )
        self.assertIn("no address of broker gone is known", self.failure(route))


class BrokerTests(FaultTestCase):
    def setUp(self):
        super().setUp()
        self.once = ProducerEngine(self.client, "once", options=ProducerOptions(retries=0))
        self.result_of(self.once.start())

    def error(self, kind):
        """The error of a send to broker b."""
        sending = Deferred.fromCoroutine(self.once.send(Message("T", b"x"), queue=MessageQueue("T", "b", 0)))
        self.clock.advance(3)
        return self.failureResultOf(sending, kind).value

    def test_errors_without_answer_name_the_broker(self):
        self.successResultOf(self.send())
        self.cluster.losing = ["b:10911"]
        error = self.error(ConnectionLostError)
        self.assertEqual((error.broker, error.retriable), ("b:10911", True))
        self.cluster.silent.add("b:10911")
        error = self.error(RequestTimeoutError)
        self.assertEqual((error.broker, error.retriable), ("b:10911", True))
        self.assertIsInstance(error, TimeoutError)
        self.cluster.silent.clear()
        self.cluster.down.add("b:10911")
        error = self.error(UnreachableError)
        self.assertEqual((error.broker, error.retriable), ("b", True))
        self.assertIn("is registered as b:10911", str(error))

    def test_too_many_requests(self):
        self.successResultOf(self.send())
        self.cluster.answer_310 = lambda address, request, fields: fail(RemotingTooMuchRequestError("enough"))
        error = self.error(TooManyRequestsError)
        self.assertEqual((error.broker, error.retriable), ("b:10911", True))

    def test_busy_and_system_errors_are_retriable(self):
        passing = {ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE}
        for code in (*ResponseCode, 9999):
            if code in (0, 10, 11, 12):  # is stored
                continue
            self.cluster.refusals[310, "b:10911"] = int(code)
            error = self.error(BrokerError)
            self.assertEqual((error.code, error.broker), (code, "b:10911"))
            self.assertIs(error.retriable, code in passing)
            self.assertEqual([(each.broker, each.milliseconds) for each in error.attempts], [("b", 0)])
