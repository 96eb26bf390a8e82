"""Bounds of tables that peers fill: offsets of invented names, queue locks, work for other threads."""

import os
from types import SimpleNamespace

from twisted.internet.task import Clock
from twisted.logger import Logger, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.clients.consumer_requests import ConsumerManageProcessor
from rocketd.broker.clients.queue_lock_requests import QueueLockProcessor
from rocketd.broker.clients.queue_lock_table import RebalanceLockManager
from rocketd.remoting.bodies.tables import LockBatchResponseBody, TopicConfig
from rocketd.remoting.errors import RequestError
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.limits.limit_log import LimitLog
from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from tests.support.broker import RecordingConnection, SmallBroker


class OffsetsOfInventedNamesTests(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 4, 4))
        self.ends = {("T", 0): 9, ("Gone", 9): 9}
        self.broker.store.get_max_offset = lambda topic, queue_id: self.ends.get((topic, queue_id), 0)
        self.processor = ConsumerManageProcessor(self.broker)

    def commit(self, group, topic="T", queue_id=0, offset=5, oneway=True):
        """Commit an offset; return the refusal's code, 0 if there is none."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
        request = RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields, flag=ONEWAY_FLAG if oneway else 0)
        try:
            return self.processor.process(request, SimpleNamespace(connection=RecordingConnection())).code
        except RequestError as error:
            return error.code

    def table(self):
        return self.broker.offsets.snapshot().offset_table

    def test_oneway_commits_of_invented_groups_are_not_kept(self):
        for number in range(20_000):
            self.commit(f"invented-{number}")
        self.assertEqual((self.table(), len(self.broker.group_guard._used)), ({}, 0))
        self.assertEqual(self.broker.dispatcher.limits.counts["offsets not kept"], 20_000)
        self.assertIsNone(self.broker.groups.get("invented-0"))

    def test_commits_of_invented_topics_and_queues_are_not_kept(self):
        self.broker.groups.find("G")
        for oneway in (True, False):
            self.assertEqual(self.commit("G", topic="Invented", oneway=oneway), ResponseCode.TOPIC_NOT_EXIST)
            for queue_id in (4, -1, 2_000_000_000):
                self.assertEqual(self.commit("G", queue_id=queue_id, oneway=oneway), ResponseCode.TOPIC_NOT_EXIST)
        self.assertEqual(self.table(), {})

    def test_commit_of_a_known_group_is_kept(self):
        self.broker.groups.find("G")
        self.assertEqual(self.commit("G"), 0)
        self.assertEqual(self.table(), {"T@G": {0: 5}})

    def test_commit_of_online_group_without_entry_is_kept(self):
        self.broker.settings.broker.auto_create_subscription_group = False
        self.broker.consumers.find = lambda group: object() if group == "Online" else None
        self.assertEqual((self.commit("Online"), self.commit("Offline")), (0, 26))
        self.assertEqual(self.commit("Offline", oneway=False), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.assertEqual(set(self.table()), {"T@Online"})

    def test_administrator_may_set_offset_of_unknown_group(self):
        self.assertEqual(self.commit("Later", oneway=False), 0)
        self.assertEqual(self.table(), {"T@Later": {0: 5}})
        self.assertIsNotNone(self.broker.groups.get("Later"))

    def test_offsets_create_few_groups_in_a_second(self):
        codes = [self.commit(f"invented-{number}", oneway=False) for number in range(6000)]
        self.assertEqual(codes.count(0), 50)
        self.assertEqual(set(codes[50:]), {ResponseCode.SYSTEM_BUSY})
        self.assertIsNone(self.broker.groups.get("invented-50"))
        self.assertEqual(self.broker.dispatcher.limits.counts, {"new consumer groups by offsets refused": 5950})
        self.broker.groups.find("G")
        self.assertEqual(self.commit("G", oneway=False), 0)
        self.broker.clock.advance(1)
        self.assertEqual([self.commit(f"later-{number}", oneway=False) for number in range(11)], [0] * 10 + [2])

    def test_offsets_of_light_groups_are_not_rate_limited(self):
        self.broker.groups.serve_light_queues()
        codes = {self.commit(f"%LMQ%{number}", oneway=oneway) for number in range(100) for oneway in (True, False)}
        self.assertEqual(codes, {0})

    def test_offset_of_group_without_auto_create_is_refused_as_unknown(self):
        self.broker.settings.broker.auto_create_subscription_group = False
        codes = {self.commit(f"invented-{number}", oneway=False) for number in range(100)}
        self.assertEqual(codes, {ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST})

    def test_offset_beyond_the_end_of_its_queue_is_not_kept(self):
        self.broker.groups.find("G")
        self.assertEqual(self.commit("G", offset=9), 0)
        self.ends["T", 0] = 3  # the topic was deleted and recreated
        self.broker.offsets.remove_topic("T")
        for oneway in (True, False):
            self.assertEqual(self.commit("G", offset=9, oneway=oneway), ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.table(), {})
        self.assertEqual(self.commit("G", offset=3), 0)
        self.assertEqual(self.commit("G", offset=4), ResponseCode.SYSTEM_ERROR)
        self.assertEqual(self.table(), {"T@G": {0: 3}})

    def test_commit_continues_for_forgotten_group_and_topic(self):
        self.broker.offsets.commit("h:1", "Old", "Gone", 9, 3)
        self.assertEqual(self.commit("Old", "Gone", 9), 0)
        self.assertEqual(self.table(), {"Gone@Old": {9: 5}})

    def test_queries_of_invented_groups_are_remembered_up_to_limit(self):
        for number in range(11_000):
            self.broker.group_guard.begun_at_first(f"invented-{number}", "T", 0)
        self.assertEqual(len(self.broker.group_guard._begun), 10_000)


class LocksTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.limits = LimitLog(Logger(), self.clock.seconds)
        self.locks = RebalanceLockManager(
            lambda: int(self.clock.seconds() * 1000), 60_000, lambda: 100_000, self.limits
        )
        self.events = []
        globalLogPublisher.addObserver(self.events.append)
        self.addCleanup(globalLogPublisher.removeObserver, self.events.append)

    def test_locks_are_bounded_expire_and_log_once_per_batch(self):
        for frame in range(4):
            self.locks.lock_batch(f"G{frame}", [("T", "b", number) for number in range(50_000)], "c", known=False)
        self.assertEqual(len(self.locks), 100_000)
        self.assertEqual(self.limits.counts, {"queue locks refused": 100_000})
        self.assertEqual(self.locks.lock_batch("Other", [("T", "b", 0)], "c", known=False), [])
        self.assertEqual(self.locks.lock_batch("Known", [("T", "b", 0)], "c"), [("T", "b", 0)])
        self.assertLess(len(self.events), 10)
        self.assertLess(max(len(formatEvent(event)) for event in self.events), 1000)
        self.clock.advance(59)
        self.locks.lock_batch("G0", [("T", "b", 0)], "c")
        self.clock.advance(2)
        self.locks.drop_expired()
        self.assertEqual(len(self.locks), 1)
        self.assertEqual(self.locks.lock_batch("G0", [("T", "b", 0)], "other"), [])
        self.assertEqual(self.locks.lock_batch("Other", [("T", "b", 0)], "c"), [("T", "b", 0)])

    def test_unlocked_and_taken_over_locks_are_counted_correctly(self):
        queues = [("T", "b", number) for number in range(3)]
        self.locks.lock_batch("G", queues, "one")
        self.locks.unlock_batch("G", queues[:1], "one")
        self.locks.unlock_batch("G", queues, "two")
        self.assertEqual(len(self.locks), 2)
        self.clock.advance(61)
        self.assertEqual(self.locks.lock_batch("G", queues, "two"), queues)
        self.assertEqual(len(self.locks), 3)
        self.clock.advance(61)
        self.locks.drop_expired()
        self.assertEqual((len(self.locks), self.locks._groups), (0, {}))


class LockRequestTests(SynchronousTestCase):
    def setUp(self):
        self.broker = SmallBroker(os.path.abspath(self.mktemp()))
        self.broker.start()
        self.addCleanup(self.broker.stop)
        self.broker.topics.update(TopicConfig("T", 4, 2))
        self.broker.groups.find("G")
        self.processor = QueueLockProcessor(self.broker)

    def lock(self, group, queues, code=RequestCode.LOCK_BATCH_MQ):
        body = {
            "consumerGroup": group,
            "clientId": "c",
            "mqSet": [{"topic": topic, "brokerName": "b", "queueId": queue_id} for topic, queue_id in queues],
        }
        return self.processor.process(RemotingCommand(code, {}, fastjson.dumps(body)), None)

    def locked(self, group, queues):
        found = LockBatchResponseBody.decode(self.lock(group, queues).body).lock_ok_mq_set
        return sorted((queue.topic, queue.queue_id) for queue in found)

    def test_unknown_queues_and_groups_get_locks_up_to_the_limit(self):
        self.broker.settings.broker.max_queue_locks = 2
        known, unknown = [("T", 0), ("T", 3)], [("T", 4), ("T", -1), ("Invented", 0)]
        self.assertEqual(self.locked("Invented", [("T", 1), ("T", 2)]), [("T", 1), ("T", 2)])
        self.assertEqual(self.locked("Invented", [("T", 1), ("T", 3)]), [("T", 1)])
        self.assertEqual(self.locked("G", known + unknown), known)
        self.assertEqual(len(self.broker.locks), 4)

    def test_request_with_too_many_queues_is_refused(self):
        queues = [("T", number) for number in range(10_001)]
        for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
            error = self.assertRaises(RequestError, self.lock, "G", queues, code)
            self.assertIn("maxQueuesPerLockRequest", error.remark)
