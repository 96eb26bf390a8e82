"""Half messages and their ends on a real store: stored records, visibility, refusals."""

from zope.interface.verify import verifyObject

from rocketd.broker.send.half_messages import renewed
from rocketd.broker.transaction.processor import ResumeCheckProcessor
from rocketd.common.java_hash import java_string_hash
from rocketd.common.names import TIMER_TOPIC
from rocketd.remoting import problems
from rocketd.remoting.bodies.tables import TopicConfig
from rocketd.remoting.interfaces import IJobProcessor, IRequestProcessor
from rocketd.store.format.message import PutStatus
from rocketd.store.format.record import decode_messages
from tests.support.broker import BORN_HOST, STORE_HOST, job_of
from tests.support.transactions import COMMIT, ROLLBACK, UNKNOWN, TransactionTestCase

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"


class HalfTests(TransactionTestCase):
    def test_half_message_is_hidden_and_has_real_queue(self):
        answer = self.send(b"body", TAGS="A", KEYS="k", mine="x")
        self.assertEqual((answer.code, answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]), (0, "2", "0"))
        (half,) = self.read(HALF)
        self.assertEqual(
            half.properties_map(),
            {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "u", "WAIT": "true", "TAGS": "A", "KEYS": "k", "mine": "x",
             "CLUSTER": "DefaultCluster", "REAL_TOPIC": "T", "REAL_QID": "2"},
        )  # fmt: skip
        self.assertEqual((half.body, half.flag, half.sys_flag & 12, half.born_host), (b"body", 7, 0, BORN_HOST))
        self.assertEqual(answer.ext_fields["msgId"], f"{STORE_HOST.hex()}{half.physical_offset:016x}".upper())
        self.assertEqual(self.bodies(), [])

    def test_tran_msg_property_is_true_in_any_case(self):
        self.send(TRAN_MSG="TRUE")
        self.send(TRAN_MSG="False", sys_flag=0)
        self.assertEqual(self.send(TRAN_MSG="1", sys_flag=0).code, 13)
        self.assertEqual((len(self.read(HALF)), len(self.bodies())), (1, 1))

    def test_retry_of_old_consumer_is_not_a_half_message(self):
        self.send(b"back", sys_flag=0, reconsume_times=1, DELAY="1")
        self.assertEqual((self.read(HALF), len(self.read("SCHEDULE_TOPIC_XXXX"))), ([], 1))

    def test_delay_level_applies_after_commit(self):
        half = self.half(b"late", sys_flag=0, DELAY="2")
        self.assertEqual(self.end(half).code, 0)
        (waiting,) = self.read("SCHEDULE_TOPIC_XXXX", 1)
        self.assertEqual((waiting.body, waiting.sys_flag & 12, self.bodies()), (b"late", 8, []))
        self.broker.clock.advance(5)
        self.broker.schedule.deliver_due()
        self.broker.settle()
        self.assertEqual(self.bodies(), [b"late"])

    def test_timer_applies_after_commit(self):
        half = self.half(b"late", sys_flag=0, TIMER_DELAY_SEC="9")
        self.assertNotIn("TIMER_OUT_MS", half.properties_map())
        self.assertEqual((self.read(TIMER_TOPIC), self.end(half).code), ([], 0))
        (waiting,) = self.read(TIMER_TOPIC)
        self.assertEqual((waiting.body, waiting.sys_flag & 12, self.bodies()), (b"late", 8, []))

    def test_half_message_with_invalid_timer_is_refused(self):
        for table in (
            {"TIMER_DELAY_SEC": "99999999"},
            {"TIMER_DELIVER_MS": "abc"},
            {"TIMER_DEL_UNIQKEY": "other"},
            {"TIMER_DEL_UNIQKEY": "other", "TIMER_DELAY_MS": "0"},
        ):
            for sys_flag in (0, 4):
                answer = self.send(sys_flag=sys_flag, **table)
                self.assertEqual(answer.code, 13)
                self.assertTrue(answer.remark.startswith("timer message illegal, "), answer.remark)
        self.broker.settings.store.timer_wheel_enable = False
        answer = self.send(TIMER_DELAY_SEC="9")
        self.assertEqual(answer.code, 1)
        self.assertIn("accurate timer message is not enabled", answer.remark)
        self.assertEqual(self.broker.store.max_physical_offset(), 0)

    def test_delay_level_precedes_invalid_timer(self):
        self.assertEqual(self.end(self.half(b"late", DELAY="2", TIMER_DELAY_SEC="abc")).code, 0)
        self.assertEqual(len(self.read("SCHEDULE_TOPIC_XXXX", 1)), 1)

    def test_half_messages_are_refused_after_setting_change(self):
        self.broker.settings.broker.reject_transaction_message = True
        answer = self.send()
        self.assertEqual(
            (answer.code, answer.remark.partition("; cause: ")[0]),
            (16, "the broker[127.0.0.1] sending transaction message is forbidden"),
        )
        self.assertEqual(self.broker.store.max_physical_offset(), 0)
        self.broker.settings.broker.reject_transaction_message = False
        self.assertEqual(self.send().code, 0)


class EndTests(TransactionTestCase):
    def test_commit_shows_the_message(self):
        half = self.half(b"body", TAGS="A", KEYS="k1 k2", mine="x", reconsume_times=3)
        answer = self.end(half)
        self.assertEqual((answer.code, answer.remark, answer.ext_fields), (0, None, None))
        (message,) = self.read("T", 2)
        self.assertEqual(message.properties, half.properties)
        self.assertEqual(
            (message.body, message.flag, message.sys_flag & 12, message.prepared_transaction_offset),
            (b"body", 7, 8, half.physical_offset),
        )
        self.assertEqual(
            (message.born_timestamp, message.born_host, message.reconsume_times),
            (half.born_timestamp, BORN_HOST, 3),
        )
        self.assertEqual(self.broker.store.queue_entries("T", 2, 0, 9)[0][2], java_string_hash("A"))
        for key in ("u", "k1", "k2"):
            self.assertEqual(len(self.broker.store.query_messages("T", key, 9, 0, 1 << 60).buffers), 1)

    def test_commit_to_a_queue_that_the_topic_no_longer_has_goes_to_another(self):
        half = self.half(b"body")
        self.broker.topics.update(TopicConfig("T", 1, 1, 6))
        self.assertEqual(self.end(half).code, 0)
        self.assertEqual([message.body for message in self.read("T", 0)], [b"body"])

    def test_op_message_equals_apaches(self):
        self.half()
        self.end(self.half())
        (op,) = self.read(OP)
        self.assertEqual(
            (op.body, op.properties, op.sys_flag, op.born_host), (b"1", b"WAIT\1true\2TAGS\1d", 0, STORE_HOST)
        )
        self.assertEqual(self.broker.store.queue_entries(OP, 0, 0, 9)[0][2], java_string_hash("d"))

    def test_message_and_mark_are_one_write(self):
        half = self.half(b"b" * 1000)
        sizes = []
        self.broker.store.add_append_listener(lambda: sizes.append(self.broker.store.max_physical_offset()))
        self.end(half)
        self.assertEqual(len(sizes), 1)

    def test_ends_of_many_requests_are_few_writes(self):
        halves = [self.half(b"b" * 10_000) for _ in range(60)]
        sizes = []
        self.broker.store.add_append_listener(lambda: sizes.append(self.broker.store.max_physical_offset()))
        requests = [self.end_request(half, ROLLBACK if half.queue_offset % 2 else COMMIT) for half in halves]
        self.ends.process_jobs([job_of(self.ends, self.connection, *requests[:50], requests[0]),
                                job_of(self.ends, self.connection, *requests[50:])])  # fmt: skip
        self.broker.settle()
        answers = self.connection.answers()
        self.assertEqual({answer.code for answer in answers}, {0})
        self.assertEqual(
            [answer.opaque for answer in answers],
            [request.opaque for request in (*requests[:50], requests[0], *requests[50:])],
        )
        self.assertEqual((len(sizes), len(self.bodies()), len(self.read(OP))), (3, 31, 61))

    def test_unstorable_end_leaves_other_ends_alone(self):
        halves = [self.half(b"b" * size) for size in (10, 1000, 20)]
        self.patch(self.broker.settings.store, "max_message_size", 500)
        requests = [self.end_request(half) for half in halves]
        self.ends.process_jobs([job_of(self.ends, self.connection, *requests)])
        self.broker.settle()
        self.assertEqual([answer.code for answer in self.connection.answers()], [0, 13, 0])
        self.assertEqual([len(body) for body in self.bodies()], [10, 20])
        self.assertEqual([op.body for op in self.read(OP)], [b"0", b"2"])

    def test_store_error_is_answered(self):
        requests = [self.end_request(self.half()) for _ in range(2)]

        def failing(messages):
            raise OSError("no such disk")

        self.patch(self.broker.store, "put_batch", failing)
        self.ends.process_jobs([job_of(self.ends, self.connection, *requests)])
        self.assertEqual(
            [(answer.code, answer.remark) for answer in self.connection.answers()],
            [(1, problems.PROCESSOR_FAILED.text(code=37))] * 2,
        )
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1, "of both, within a minute")

    def test_rollback_hides_message_for_ever(self):
        half = self.half()
        answer = self.end(half, ROLLBACK)
        self.assertEqual((answer.code, answer.remark, answer.ext_fields), (0, "not set any response code", None))
        self.assertEqual((self.bodies(), [op.body for op in self.read(OP)]), ([], [b"0"]))

    def test_undecided_is_not_answered(self):
        half = self.half()
        for check in ("true", "false"):
            self.assertIsNone(self.end(half, UNKNOWN, fromTransactionCheck=check))
        self.assertEqual((self.bodies(), self.read(OP)), ([], []))

    def test_commit_creates_topic_lost_in_kill(self):
        half = self.half()
        self.broker.topics.delete("T")
        self.assertEqual(self.end(half).code, 0)
        self.assertGreater(self.broker.topics.select("T").read_queue_nums, 2)
        self.assertEqual(self.bodies(), [b"x"])

    def test_commit_does_not_create_deleted_topic(self):
        self.end(self.half())
        half = self.half()
        self.broker.topics.delete("T")
        self.broker.store.delete_topic("T")
        answer = self.end(half)
        self.assertEqual((answer.code, answer.remark), (17, "topic[T] was deleted"))
        self.assertIsNone(self.broker.topics.select("T"))
        self.assertEqual(self.bodies(), [])
        self.assertEqual(len(self.read(OP)), 2, "the half message has ended")

    def test_commit_is_answered_after_write_of_new_topic(self):
        half = self.half()
        self.broker.topics.delete("T")
        waiting = []
        self.broker.topics.new_name_durability.confirmers.append(lambda names, confirmed: waiting.append(confirmed))
        self.assertIsNone(self.end(half))
        (confirmed,) = waiting
        confirmed(PutStatus.PUT_OK)
        self.assertEqual(self.connection.answer().code, 0)

    def test_oneway_end_is_not_answered(self):
        self.assertIsNone(self.end(self.half(), oneway=True))
        self.assertEqual(self.bodies(), [b"x"])

    def test_failed_oneway_end_is_counted_as_lost(self):
        half = self.half()
        self.assertIsNone(self.end(half, oneway=True, producerGroup="Q"))
        self.broker.set_disk_full(True)
        self.assertIsNone(self.end(half, oneway=True))
        self.broker.settings.store.broker_role = "SLAVE"
        self.assertIsNone(self.end(half, oneway=True))
        counts = {
            "one-way requests lost": 3,
            "one-way requests lost, system-error": 1,
            "one-way requests lost, service-not-available": 1,
            "one-way requests lost, slave-not-available": 1,
        }
        self.assertEqual(self.broker.dispatcher.limits.counts, counts)

    def test_end_with_mismatched_fields_is_refused(self):
        half = self.half()
        end = half.physical_offset + half.store_size
        for changed, remark in (
            ({"producerGroup": "Q"}, "The producer group wrong"),
            ({"tranStateTableOffset": "1"}, "The transaction state table offset wrong"),
            ({"commitLogOffset": str(end)}, "Find prepared transaction message failed"),
            ({"commitLogOffset": str(half.physical_offset + 1)}, "Find prepared transaction message failed"),
            ({"commitLogOffset": "-1"}, "Find prepared transaction message failed"),
            ({"commitOrRollback": "4"}, "commitOrRollback field wrong"),
        ):
            for how in (COMMIT, ROLLBACK):
                answer = self.end(half, how, **changed)
                self.assertEqual((answer.code, answer.remark), (1, remark))
        self.assertEqual(self.broker.store.max_physical_offset(), end)

    def test_only_half_messages_can_be_committed(self):
        self.end(self.half())
        answer = self.end(self.read("T", 2)[0])
        self.assertEqual((answer.code, answer.remark), (1, "Find prepared transaction message failed"))
        self.assertEqual(self.bodies(), [b"x"])

    def test_half_message_without_valid_queue_stays_hidden(self):
        half = self.half()
        table = half.properties_map()
        for changed in ({"REAL_TOPIC": "a/b"}, {"REAL_QID": "two"}, {"REAL_QID": "-1"}):
            self.assertEqual(self.put_half(half, {**table, **changed}).status, PutStatus.PUT_OK)
            self.assertEqual(self.end(self.read(HALF)[-1]).code, 13)
        self.assertEqual(self.read(OP), [])

    def put_half(self, half, table):
        result = self.broker.store.put_messages([renewed(half, table)])[0]
        self.broker.settle()
        return result

    def test_half_message_with_damaged_delay_in_the_log_is_committed_without_it(self):
        half = self.half()
        self.put_half(half, {**half.properties_map(), "DELAY": "4Pinpoint-Flags"})
        self.assertEqual(self.end(self.read(HALF)[-1]).code, 0)
        self.assertEqual(self.bodies(), [b"x"])

    def test_end_refused_by_store_is_answered_and_repeatable(self):
        half = self.half()
        self.broker.set_disk_full(True)
        answer = self.end(half)
        self.assertEqual(answer.code, 14)
        self.broker.set_disk_full(False)
        self.assertEqual(self.end(half).code, 0)
        self.assertEqual(self.bodies(), [b"x"])

    def test_slave_refuses_ends(self):
        half = self.half()
        self.broker.settings.store.broker_role = "SLAVE"
        for how in (COMMIT, ROLLBACK, UNKNOWN):
            answer = self.end(half, how)
            self.assertEqual((answer.code, answer.remark), (11, "not set any response code"))

    def test_interfaces(self):
        verifyObject(IJobProcessor, self.ends)
        verifyObject(IRequestProcessor, ResumeCheckProcessor(self.broker))


class SynchronousFlushTests(TransactionTestCase):
    options = {"flushDiskType": "SYNC_FLUSH"}

    def setUp(self):
        super().setUp()
        self.halves = [self.half(WAIT="false") for _ in range(2)]
        self.flushes = []
        self.patch(self.broker.store, "when_flushed", lambda end, callback: self.flushes.append((end, callback)))

    def test_end_is_answered_after_flush(self):
        for how, status, code in ((COMMIT, PutStatus.PUT_OK, 0), (ROLLBACK, PutStatus.FLUSH_DISK_TIMEOUT, 10)):
            self.assertIsNone(self.end(self.halves.pop(), how))
            ((end, flushed),) = self.flushes
            self.assertEqual(end, self.broker.store.max_physical_offset())
            flushed(status)
            self.assertEqual(self.connection.answer().code, code)
            self.flushes.clear()

    def test_oneway_end_does_not_wait_for_flush(self):
        self.end(self.halves[0], oneway=True)
        self.assertEqual(self.flushes, [])


class FurtherQueuesTests(TransactionTestCase):
    options = {"enableLmq": "true", "enableMultiDispatch": "true"}

    def test_further_queues_get_message_at_commit(self):
        half = self.half(b"1", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b")
        other = self.half(b"2")
        self.assertEqual(self.read("%LMQ%a"), [])
        requests = [self.end_request(each) for each in (half, other)]
        self.ends.process_jobs([job_of(self.ends, self.connection, *requests)])
        self.broker.settle()
        self.assertEqual([answer.code for answer in self.connection.answers()], [0, 0])
        self.assertEqual(self.bodies(), [b"1", b"2"])
        for topic in ("%LMQ%a", "%LMQ%b"):
            self.assertEqual([message.body for message in self.read(topic)], [b"1"])
        self.assertEqual([op.body for op in self.read(OP)], [b"0", b"1"])


class LogTests(TransactionTestCase):
    def test_log_of_commit_and_rollback(self):
        """The records of a commit and a rollback in the log, in order."""
        first, second = self.half(b"1"), self.half(b"2")
        self.end(first)
        self.end(second, ROLLBACK)
        log = self.broker.store.commit_log
        self.assertEqual(
            [(m.topic, m.queue_id, m.queue_offset, m.body) for m in decode_messages(log.select(0, log.max_offset))],
            [(HALF, 0, 0, b"1"), (HALF, 0, 1, b"2"), ("T", 2, 0, b"1"), (OP, 0, 0, b"0"), (OP, 0, 1, b"1")],
        )
