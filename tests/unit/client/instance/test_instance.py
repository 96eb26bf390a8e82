"""The instance shared by all members of a client: its id and its periodic work, on a fake clock."""

import os
import re

from rocketd.client.consumer.options.kind_options import ConsumerOptions
from rocketd.client.consumer.options.subscription import Sql
from rocketd.client.consumer.push_consumer import PushConsumerEngine
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.messages.message import Message
from rocketd.client.producer.producer import ProducerEngine
from rocketd.client.settings.config import ClientConfig
from rocketd.common.names import AUTO_CREATE_TOPIC
from rocketd.remoting.wire.command import RemotingCommand
from tests.support.client_cluster import ClientTestCase, Cluster

AT_A, AT_B, AT_SLAVE = "a:10911", "b:10911", "a:20911"
SECONDS = 30


class IdTests(ClientTestCase):
    def client_id(self, **config):
        config = ClientConfig(namesrv="ns:9876", client_ip="10.0.0.9", **config)
        return ClientInstance(self.clock, config, remoting=Cluster()).client_id

    def test_id_is_address_name_and_unit(self):
        self.assertEqual(self.client_id(instance_name="me"), "10.0.0.9@me")
        self.assertEqual(self.client_id(instance_name="me", unit_name="north"), "10.0.0.9@me@north")

    def test_id_without_name_is_unique(self):
        one, other = self.client_id(), self.client_id()
        for name in (one, other):
            self.assertTrue(re.fullmatch(rf"10\.0\.0\.9@{os.getpid()}#[0-9a-f]{{8}}", name), name)
        self.assertNotEqual(one, other)

    def test_id_is_sent_to_brokers(self):
        producer = ProducerEngine(self.client, "pg")
        self.result_of(producer.start())
        self.result_of(producer.send(Message("T", b"x")))
        self.clock.advance(SECONDS)
        self.assertEqual({heartbeat.client_id for heartbeat in self.cluster.heartbeats}, {"10.0.0.9@me"})


class TimeTests(ClientTestCase):
    def producing(self, group="pg"):
        producer = ProducerEngine(self.client, group)
        self.result_of(producer.start())
        self.result_of(producer.send(Message("T", b"x")))
        self.cluster.asked.clear()
        return producer

    def beaten(self):
        """Return the addresses that got heartbeats since the last call."""
        addresses = [address for address, _ in self.cluster.of(34)]
        self.cluster.asked.clear()
        return sorted(addresses)

    def queues(self, producer):
        return [(queue.broker_name, queue.queue_id) for queue in self.result_of(producer.publish_queues("T"))]

    def test_heartbeats_and_routes_every_thirty_seconds(self):
        self.producing()
        for _ in range(3):
            self.clock.advance(SECONDS - 1)
            self.assertEqual(self.cluster.codes(), [])
            self.clock.advance(1)
            self.assertEqual(sorted(self.cluster.codes()), [34, 34, 105])
            self.cluster.asked.clear()

    def test_changed_route_reaches_every_producer(self):
        producers = self.producing(), self.producing("other")
        self.assertEqual([self.queues(producer) for producer in producers], [[("a", 0), ("b", 0)]] * 2)
        self.cluster.brokers.append("c")
        self.clock.advance(SECONDS)
        self.assertEqual([self.queues(producer) for producer in producers], [[("a", 0), ("b", 0), ("c", 0)]] * 2)
        sent = {self.result_of(producers[0].send(Message("T", b"x"))).queue.broker_name for _ in range(3)}
        self.assertEqual(sent, {"a", "b", "c"})

    def test_unchanged_route_keeps_turn_of_producer(self):
        producer = self.producing()
        turns = [self.result_of(producer.send(Message("T", b"x"))).queue.broker_name for _ in range(3)]
        self.cluster.brokers.reverse()  # name servers have no order
        self.clock.advance(SECONDS)
        turns += [self.result_of(producer.send(Message("T", b"x"))).queue.broker_name for _ in range(3)]
        self.assertIn("".join(turns), ("ababab", "bababa"))

    def test_broker_without_route_gets_no_more_heartbeats(self):
        self.producing()
        self.cluster.brokers.remove("b")
        self.clock.advance(SECONDS)  # before this heartbeat, or after it, its route was asked for
        self.clock.advance(SECONDS)
        self.cluster.asked.clear()
        self.clock.advance(SECONDS)
        self.assertEqual(self.beaten(), [AT_A])
        self.assertIsNone(self.client.routes.address_of("b"))

    def test_slaves_get_heartbeats_of_consumers_only(self):
        self.cluster.slaves = {"a": {1: AT_SLAVE}}
        self.producing()
        self.clock.advance(SECONDS)
        self.assertEqual(self.beaten(), [AT_A, AT_B])
        consumer = PushConsumerEngine(self.client, "cg", print, options=ConsumerOptions(begin="earliest"))
        consumer.subscribe("T")
        self.result_of(consumer.start())
        self.assertEqual(self.beaten(), [AT_A, AT_SLAVE, AT_B])
        self.clock.advance(SECONDS)
        self.assertEqual(self.beaten(), [AT_A, AT_SLAVE, AT_B])
        self.end_of(consumer.stop())
        self.assertEqual(sorted(address for address, _ in self.cluster.of(35)), [AT_A, AT_SLAVE, AT_B])
        self.cluster.asked.clear()
        self.clock.advance(SECONDS)
        self.assertEqual(self.beaten(), [AT_A, AT_B])

    def test_offsets_every_five_seconds_and_shares_every_twenty(self):
        consumer = PushConsumerEngine(self.client, "cg", print, options=ConsumerOptions(begin="earliest"))
        consumer.subscribe("T")
        self.cluster.topics.add("%RETRY%cg")
        self.result_of(consumer.start())
        self.cluster.asked.clear()
        for second in range(1, 61):
            self.clock.advance(1)
            codes = set(self.cluster.codes())
            self.cluster.asked.clear()
            expected = {15: second % 5 == 0, 38: second % 20 == 0, 34: second % 30 == 0, 105: second % 30 == 0}
            self.assertEqual({code: code in codes for code in expected}, expected, second)
        self.end_of(consumer.stop())

    def test_a_consumer_starts_in_apaches_order(self):
        """Routes, the check of its expression, the heartbeat, the members of the group, its offsets, and pulls."""
        consumer = PushConsumerEngine(self.client, "cg", print, options=ConsumerOptions(begin="earliest"))
        consumer.subscribe("T", Sql("a > 1"))
        self.cluster.answer_46 = lambda *_: RemotingCommand.response(0)
        self.result_of(consumer.start())
        codes = list(dict.fromkeys(self.cluster.codes()))
        self.assertEqual(codes[:3], [105, 46, 34])
        self.assertEqual([code for code in codes if code in (34, 38, 14, 11)], [34, 38, 14, 11])
        self.end_of(consumer.stop())

    def test_unreachable_name_server_keeps_routes_and_heartbeats(self):
        producer = self.producing()
        self.cluster.down.add(None)
        self.clock.advance(SECONDS)
        self.assertEqual(self.queues(producer), [("a", 0), ("b", 0)])
        self.assertEqual(self.beaten(), [AT_A, AT_B])

    def test_first_queue_of_producer_is_random(self):
        first = set()
        for number in range(64):
            producer = ProducerEngine(self.client, f"pg{number}")
            self.result_of(producer.start())
            first.add(self.result_of(producer.send(Message("T", b"x"))).queue.broker_name)
        self.assertEqual(first, {"a", "b"})

    def test_topic_created_by_send_gets_its_route(self):
        self.cluster.topics.add(AUTO_CREATE_TOPIC)
        producer = ProducerEngine(self.client, "pg")
        self.result_of(producer.start())
        self.assertEqual(self.result_of(producer.send(Message("New", b"x"))).queue.topic, "New")
        self.assertEqual(len(self.result_of(producer.publish_queues("New"))), 8)
        self.cluster.topics.add("New")
        self.clock.advance(SECONDS)
        self.assertEqual(len(self.result_of(producer.publish_queues("New"))), 2)
