"""Requests about offsets and clusters: their headers, and the results of answers."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.protocol import cluster, offsets
from rocketd.protocol.errors import BrokerError
from rocketd.protocol.queues import permitted_queues, readable_queues, writable_queues
from rocketd.remoting.bodies.tables import BrokerData, ClusterInfo, KVTable, MessageQueue, QueueData, TopicRouteData
from rocketd.remoting.errors import RemotingError
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.spark.ranges import Queue

QUEUE = MessageQueue("T", "a", 3)
NAMED = {"topic": "T", "queueId": "3", "bname": "a"}


def answer(fields=None, code=0, body=None):
    return RemotingCommand.response(code, ext_fields=fields, body=body)


class OffsetTests(SynchronousTestCase):
    def test_questions_about_a_queue_name_it(self):
        for request, code, more in (
            (offsets.min_offset, 31, {}),
            (offsets.max_offset, 30, {}),
            (offsets.earliest_time, 32, {}),
            (lambda queue: offsets.search_offset(queue, 17), 29, {"timestamp": "17"}),
            (lambda queue: offsets.group_offset("g", queue), 14, {"consumerGroup": "g"}),
            (lambda queue: offsets.commit_offset("g", queue, 9), 15, {"consumerGroup": "g", "commitOffset": "9"}),
        ):
            for queue in (QUEUE, Queue("T", "a", 3)):
                command = request(queue).command()
                self.assertEqual((command.code, command.ext_fields), (code, NAMED | more))

    def test_results_of_offsets_are_numbers(self):
        for request in (offsets.min_offset(QUEUE), offsets.max_offset(QUEUE), offsets.search_offset(QUEUE, 0)):
            self.assertEqual(request.result("a", answer({"offset": "7"})), 7)
        self.assertEqual(offsets.earliest_time(QUEUE).result("a", answer({"timestamp": "7"})), 7)
        self.assertIsNone(offsets.earliest_time(QUEUE).result("a", answer({"timestamp": "-1"})))
        self.assertIsNone(offsets.commit_offset("g", QUEUE, 1).result("a", answer()))

    def test_missing_group_offset_is_none(self):
        request = offsets.group_offset("g", QUEUE)
        self.assertIsNone(request.result("a", answer(code=22)))
        self.assertEqual(request.result("a", answer({"offset": "0"})), 0)

    def test_group_offsets_of_a_broker_without_groups_are_empty(self):
        self.assertEqual(offsets.group_offsets().result("a", answer()), {})
        table = answer(body=b'{"offsetTable":{"T@g":{0:5}}}')
        self.assertEqual(offsets.group_offsets().result("a", table), {"T@g": {0: 5}})

    def test_refusal_raises_error_with_the_server(self):
        error = self.assertRaises(BrokerError, offsets.min_offset(QUEUE).result, "h:1", answer(code=22))
        self.assertEqual((error.code, error.broker), (22, "h:1"))

    def test_answer_without_its_field_is_an_error(self):
        self.assertRaises(RemotingError, offsets.min_offset(QUEUE).result, "a", answer({}))


class ClusterTests(SynchronousTestCase):
    def test_route_of_an_unknown_topic_is_none(self):
        request = cluster.route("T")
        self.assertEqual(
            (request.command().code, request.command().ext_fields),
            (105, {"topic": "T", "acceptStandardJsonOnly": "true"}),
        )
        self.assertIsNone(request.result("ns", answer(code=17)))

    def test_create_topic_asks_for_as_many_queues_to_read_and_write(self):
        fields = cluster.create_topic("T", 5).command().ext_fields
        self.assertEqual((fields["readQueueNums"], fields["writeQueueNums"], fields["perm"]), ("5", "5", "6"))
        self.assertEqual((fields["topicFilterType"], fields["defaultTopic"]), ("SINGLE_TAG", "TBW102"))

    def test_results_of_bodies_are_read(self):
        table = KVTable({"a": "1"}).encode()
        self.assertEqual(cluster.runtime_info().result("b", answer(body=table)), {"a": "1"})
        self.assertEqual(cluster.topics().result("ns", answer(body=b'{"topicList":["T"]}')), ["T"])
        self.assertEqual(cluster.cluster_info().result("ns", answer(body=ClusterInfo().encode())), ClusterInfo())


class QueueTests(SynchronousTestCase):
    def test_configured_queues_of_ordered_topic_are_for_producers_only(self):
        route = TopicRouteData(
            order_topic_conf="a:1",
            queue_datas=[QueueData("a", 2, 2, 6, 0)],
            broker_datas=[BrokerData("c", "a", {0: "h:1"})],
        )
        both = [MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)]
        self.assertEqual(writable_queues("T", route), both[:1])
        self.assertEqual(permitted_queues("T", route), both)
        self.assertEqual(readable_queues("T", route), both)
