"""Checks of unended half messages at producers, on a real store and with a fake clock."""

import json
import os
from types import SimpleNamespace

from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.send.half_messages import end_mark, renewed
from rocketd.broker.transaction import half_copies, op_messages
from rocketd.broker.transaction.half_copies import HalfCopies
from rocketd.broker.transaction.op_messages import LateEnds
from rocketd.broker.transaction.processor import ResumeCheckProcessor
from rocketd.remoting.errors import RequestError
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.store.format.message import MessageInner, PutStatus
from rocketd.store.format.record import decode_message
from tests.support.broker import BORN_HOST, STORE_HOST, RecordingConnection, job_of
from tests.support.store_reading import search_for
from tests.support.transaction_checks import GROUP, HALF, OP, CheckTestCase
from tests.support.transactions import ROLLBACK

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


class QuestionTests(CheckTestCase):
    def test_ended_half_message_is_not_checked(self):
        self.end(self.half(b"1"))
        self.end(self.half(b"2"), ROLLBACK)
        self.assertEqual(self.check(), [])
        self.assertEqual((self.bodies(), self.progress(), len(self.read(HALF))), ([b"1"], [2, 2], 2))

    def test_check_request_has_message_and_header(self):
        half = self.half(b"body", TAGS="A", mine="x", reconsume_times=2)
        self.broker.clock.advance(60)
        self.broker.transactions.tick()
        self.broker.settle()
        ((connection, request),) = self.questions()
        again = self.read(HALF)[1]
        self.assertIs(connection, self.producer)
        self.assertEqual(
            (request.code, request.ext_fields),
            (39, {
                "tranStateTableOffset": "1",
                "commitLogOffset": str(again.physical_offset),
                "msgId": "u",
                "transactionId": "u",
                "offsetMsgId": f"{STORE_HOST.hex()}{again.physical_offset:016x}".upper(),
            }),
        )  # fmt: skip
        message = decode_message(request.body)
        self.assertEqual((message.topic, message.queue_id, message.body), ("T", 2, b"body"))
        self.assertEqual((message.queue_offset, message.physical_offset), (1, again.physical_offset))
        self.assertEqual((message.born_timestamp, message.born_host), (half.born_timestamp, BORN_HOST))
        self.assertEqual((message.store_timestamp, message.store_host), (half.store_timestamp, STORE_HOST))
        expected = {**half.properties_map(), "TRANSACTION_CHECK_TIMES": "1"}
        self.assertEqual(again.properties_map(), expected)
        self.assertEqual(message.properties_map(), {**expected, "WAIT": "false"})
        self.assertEqual((again.flag, again.reconsume_times, again.sys_flag & 12), (7, 2, 0))
        self.assertEqual((again.born_timestamp, again.body), (half.born_timestamp, b"body"))

    def test_half_messages_of_absent_producers_leave_one_line(self):
        events = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        for number in range(20):
            self.half(b"x", PGROUP=f"absent-{number}")
        self.check()
        self.assertEqual(sum("has no producer to ask" in formatEvent(event) for event in events), 1)

    def test_answer_to_check_ends_copy(self):
        self.half(b"1")
        self.check()
        self.end(self.read(HALF)[-1], fromTransactionCheck="true")
        self.assertEqual((self.check(), self.bodies(), self.progress()), ([], [b"1"], [2, 1]))

    def test_check_time_ignores_clock_steps(self):
        for step in (300, -300):
            self.check(57)  # the next look is 3 s away, transactionTimeOut is 6 s
            self.half(b"%d" % step)
            self.broker.wall_steps += step
            self.assertEqual(self.asked(3), [])
            self.assertEqual(self.asked(60), [b"%d" % step])
            self.end(self.read(HALF)[-1])

    def test_check_waits_for_transaction_timeout(self):
        self.broker.clock.advance(55)
        self.half()
        self.assertEqual(self.check(5), [])
        self.assertEqual(self.check(59.9), [])
        self.assertEqual(len(self.check(0.1)), 1)

    def test_transaction_timeout_is_changed_while_running(self):
        self.broker.settings.broker.transaction_time_out = 90_000
        self.half()
        self.assertEqual(self.check(), [])
        self.assertEqual(len(self.check()), 1)

    def test_young_half_message_delays_later_ones(self):
        self.broker.settings.broker.transaction_time_out = 90_000
        self.half(b"young")
        self.half(b"old", born_ms=self.broker.now_ms() - 60_000)
        self.assertEqual(self.asked(), [])
        self.assertEqual(self.asked(), [b"young", b"old"])

    def test_half_message_born_in_future_is_checked(self):
        self.half(born_ms=self.broker.now_ms() + 86_400_000)
        self.assertEqual(len(self.check()), 1)

    def test_check_reads_more_ends_than_one_pull(self):
        halves = [self.half(b"%d" % number) for number in range(100)]
        for half in reversed(halves):
            if half.queue_offset % 10:
                self.end(half)
        self.assertEqual(self.asked(), [b"%d" % number for number in range(0, 100, 10)])
        self.assertEqual(self.progress(), [100, 90])

    def test_end_not_yet_dispatched_prevents_check(self):
        half = self.half()
        self.broker.store.holds_dispatch = True
        self.end(half, settle=False)
        self.broker.clock.advance(60)
        for _ in range(3):
            self.broker.transactions.tick()
        self.assertEqual((self.questions(), self.read(OP)), ([], []))
        self.broker.store.holds_dispatch = False
        self.broker.store.release_dispatch(True)
        self.broker.settle()
        self.broker.transactions.tick()
        self.assertEqual((self.questions(), self.bodies(), self.progress()), ([], [b"x"], [1, 1]))

    def test_end_dispatched_after_lookup_prevents_check(self):
        self.check()
        half = self.half()
        store = self.broker.store
        store.holds_dispatch = True
        self.end(half, settle=False)
        behind = store.dispatch_behind_bytes
        read_more = op_messages.OpMessages.read_more
        found = []

        def read_before_it_is_visible(ops):
            found.append(read_more(ops))
            # When the look begins, and before the half message is decided.
            if found == [False, False]:
                store.holds_dispatch = False
                store.release_dispatch(True)
                while behind():
                    pass
            return found[-1]

        self.patch(op_messages.OpMessages, "read_more", read_before_it_is_visible)
        self.patch(self.broker.transactions, "_is_caught_up", lambda: True)
        self.assertEqual((self.asked(), found[:3]), ([], [False, False, True]))
        self.assertEqual((self.bodies(), len(self.read(HALF)), self.progress()), ([b"x"], 1, [1, 1]))

    def test_check_waits_for_dispatch_after_start(self):
        self.half(b"1")
        self.restart()
        self.join()
        behind = self.broker.store.dispatch_behind_bytes
        self.broker.store.dispatch_behind_bytes = lambda: 1
        self.broker.clock.advance(60)
        for _ in range(2):
            self.broker.transactions.tick()
        self.assertEqual(self.questions(), [])
        self.broker.store.dispatch_behind_bytes = behind
        self.assertEqual(self.asked(0), [b"1"])

    def test_producers_take_turns(self):
        others = [self.join() for _ in range(2)]
        others[0].close()
        self.join("Q")
        for _ in range(4):
            self.half()
        self.broker.clock.advance(60)
        self.broker.transactions.tick()
        asked = [connection for connection, _ in self.questions()]
        self.assertEqual([asked.count(each) for each in (self.producer, others[0], others[1])], [2, 0, 2])

    def test_check_without_producer_waits_for_one(self):
        self.broker.producers.connection_closed(self.producer)
        self.half(b"1")
        self.assertEqual(self.asked(), [])
        self.join()
        self.assertEqual(self.asked(), [b"1"])
        self.assertEqual(self.read(HALF)[-1].properties_map()["TRANSACTION_CHECK_TIMES"], "2")

    def test_long_check_yields_to_other_work(self):
        for _ in range(50):
            self.half()
        self.broker.dispatcher.delay = True
        self.broker.clock.advance(60)
        seconds = self.broker.clock.seconds
        self.patch(self.broker.transactions, "_clock", lambda: (self.broker.clock.advance(0.004), seconds())[1])
        self.broker.transactions.tick()
        rounds = 0
        while self.broker.dispatcher.calls:
            self.assertEqual(self.broker.dispatcher.run(), ["send"])
            rounds += 1
        self.assertEqual(len(self.questions()), 50)
        self.assertGreater(rounds, 10)


class SlowAnswerTests(CheckTestCase):
    """A producer that answers about one copy when there is another already."""

    def setUp(self):
        super().setUp()
        self.half(b"1")
        self.check()
        self.check()
        self.copies = self.read(HALF)
        self.assertEqual(len(self.copies), 3)

    def test_copies_are_committed_once(self):
        for copy in (*self.copies[1:], *self.copies):
            self.assertEqual(self.end(copy).code, 0)
        self.assertEqual((self.bodies(), self.check(), self.progress()), ([b"1"], [], [3, 5]))

    def test_copies_in_one_write_are_committed_once(self):
        requests = [self.end_request(copy) for copy in self.copies]
        self.ends.process_jobs([job_of(self.ends, self.connection, *requests)])
        self.broker.settle()
        self.assertEqual([answer.code for answer in self.connection.answers()], [0, 0, 0])
        self.assertEqual((self.bodies(), len(self.read(OP))), ([b"1"], 3))

    def test_committed_copy_is_not_checked(self):
        self.end(self.copies[0])
        self.assertEqual((self.bodies(), self.check(), self.progress()), ([b"1"], [], [3, 1]))

    def test_commit_after_rollback_is_effective(self):
        self.end(self.copies[1], ROLLBACK)
        self.assertEqual(self.bodies(), [])
        self.assertEqual(self.asked(), [b"1"])
        self.end(self.copies[0])
        self.end(self.read(HALF)[-1])
        self.assertEqual(self.bodies(), [b"1"])

    def test_failed_commit_of_copy_may_be_repeated(self):
        self.broker.set_disk_full(True)
        self.assertEqual(self.end(self.copies[1]).code, 14)
        self.broker.set_disk_full(False)
        self.end(self.copies[2])
        self.assertEqual(self.bodies(), [b"1"])

    def test_oldest_copies_are_forgotten(self):
        self.patch(half_copies, "LIMIT", 2)
        known = HalfCopies()
        for offset in range(0, 30, 10):
            known.add(offset, offset + 1)
            known.commit(offset + 1)
        self.assertEqual([known.is_committed(offset) for offset in (0, 1, 10, 11, 20, 21)], [False] * 2 + [True] * 4)
        known.commit(5)
        self.assertFalse(known.is_committed(5))


class GivenUpTests(CheckTestCase):
    options = {"transactionCheckMax": "3"}

    def test_half_message_is_given_up_after_max_checks(self):
        self.half(b"1", TAGS="A")
        self.assertEqual([self.asked() for _ in range(3)], [[b"1"]] * 3)
        self.assertIsNone(self.broker.topics.select(GIVEN_UP))
        self.assertEqual([self.asked() for _ in range(2)], [[], []])
        (kept,) = self.read(GIVEN_UP)
        self.assertEqual((kept.body, kept.flag, kept.properties), (b"1", 7, self.read(HALF)[-1].properties))
        self.assertEqual(kept.properties_map()["TRANSACTION_CHECK_TIMES"], "3")
        config = self.broker.topics.select(GIVEN_UP)
        self.assertEqual((config.read_queue_nums, config.write_queue_nums, config.perm), (1, 1, 6))
        self.assertEqual(self.bodies(), [])

    def test_end_of_given_up_message_is_effective(self):
        half = self.half(b"1")
        for _ in range(3):
            self.check()
        for _ in range(40):
            self.end(self.half(b"other"), ROLLBACK)
        self.end(self.read(HALF)[3])
        self.assertEqual((self.check(), self.bodies(), self.read(GIVEN_UP)), ([], [b"1"], []))
        self.assertEqual(half.queue_offset, 0)

    def test_half_message_older_than_files_is_given_up(self):
        self.half(b"1", born_ms=self.broker.now_ms() - 73 * 3_600_000)
        self.assertEqual((self.asked(), [kept.body for kept in self.read(GIVEN_UP)]), ([], [b"1"]))

    def test_given_up_message_is_resumed(self):
        self.half(b"1")
        for _ in range(4):
            self.check()
        (kept,) = self.read(GIVEN_UP)
        resume = ResumeCheckProcessor(self.broker)
        message_id = f"{STORE_HOST.hex()}{kept.physical_offset:016x}".upper()
        context = SimpleNamespace(connection=RecordingConnection())
        answer = resume.process(RemotingCommand(323, {"msgId": message_id}), context)
        self.broker.settle()
        self.assertEqual((answer.code, answer.remark), (0, None))
        noted = self.broker.audit.answer(RemotingCommand(RequestCode.GET_ADMIN_CHANGES, {"count": "1"}))
        (change,) = json.loads(noted.body)["changes"]
        self.assertEqual((change["action"], change["subject"]), ("check half message again", message_id))
        self.assertEqual(self.read(HALF)[-1].properties_map()["TRANSACTION_CHECK_TIMES"], "0")
        self.assertEqual([self.asked() for _ in range(4)], [[b"1"], [b"1"], [b"1"], []])
        self.end(self.read(HALF)[-1])
        self.assertEqual(self.bodies(), [b"1"])

    def test_half_message_of_deleted_topic_is_dropped(self):
        """Its copy would be younger than the deletion, and bring the topic back."""
        self.half()
        self.delete_topic()
        self.assertEqual((self.asked(), len(self.read(HALF)), self.progress()[0]), ([], 1, 1))

    def delete_topic(self):
        self.broker.topics.delete("T")
        self.broker.store.delete_topic("T")

    def test_resume_for_deleted_topic_is_refused(self):
        self.half()
        for _ in range(4):
            self.check()
        (kept,) = self.read(GIVEN_UP)
        self.delete_topic()
        request = RemotingCommand(323, {"msgId": f"{STORE_HOST.hex()}{kept.physical_offset:016x}".upper()})
        self.assertRaises(RequestError, ResumeCheckProcessor(self.broker).process, request, None)

    def test_resume_of_other_messages_is_refused(self):
        resume = ResumeCheckProcessor(self.broker)
        half = self.half()
        self.end(half)
        (op,) = self.read(OP)
        raised = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
        for message_id in (None, "", "x" * 32, f"{0:016x}{1:016x}", f"{0:016x}{op.physical_offset:016x}"):
            fields = {} if message_id is None else {"msgId": message_id}
            error = self.assertRaises(RequestError, resume.process, RemotingCommand(323, fields), None)
            self.assertEqual((error.code, error.remark), (1, raised))
        self.broker.set_disk_full(True)
        fields = {"msgId": f"{0:016x}{half.physical_offset:016x}"}
        error = self.assertRaises(RequestError, resume.process, RemotingCommand(323, fields), None)
        self.assertEqual((error.code, error.remark), (1, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."))
        self.broker.set_disk_full(False)
        self.assertEqual((len(self.read(HALF)), self.bodies()), (1, [b"x"]))


class ImmunityTests(CheckTestCase):
    def test_immune_half_message_is_not_checked(self):
        self.half(b"1", CHECK_IMMUNITY_TIME_IN_SECONDS="150")
        self.half(b"2")
        self.assertEqual([self.asked() for _ in range(4)], [[b"2"], [b"2"], [b"1", b"2"], [b"1", b"2"]])
        copies = [m.properties_map() for m in self.read(HALF) if m.body == b"1"]
        self.assertEqual([m.get("TRAN_PREPARED_QUEUE_OFFSET") for m in copies], [None, "0", "0", "0", "0"])
        self.assertEqual([m.get("TRANSACTION_CHECK_TIMES") for m in copies], [None, None, None, "1", "2"])

    def test_end_at_first_offset_ends_immune_message(self):
        half = self.half(b"1", CHECK_IMMUNITY_TIME_IN_SECONDS="150")
        self.check()
        self.check()
        self.end(half)
        self.assertEqual([self.asked() for _ in range(3)], [[], [], []])
        self.assertEqual((self.bodies(), self.progress()), ([b"1"], [3, 1]))

    def test_invalid_immunity_time_is_ignored(self):
        self.half(b"1", CHECK_IMMUNITY_TIME_IN_SECONDS="soon")
        self.half(b"2", CHECK_IMMUNITY_TIME_IN_SECONDS="-1")
        self.assertEqual(self.asked(), [b"1", b"2"])


class ProgressTests(CheckTestCase):
    def test_check_progress_survives_restart(self):
        self.end(self.half(b"1"))
        self.half(b"2")
        self.check()
        self.restart()
        self.join()
        with open(os.path.join(self.directory, "config", "consumerOffset.json")) as file:
            self.assertEqual(
                file.read(),
                '{\n\t"offsetTable":{\n\t\t"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:2\n\t\t},\n'
                '\t\t"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:1\n\t\t}\n\t}\n}',
            )
        self.assertEqual(self.asked(), [b"2"])

    def test_lost_progress_repeats_no_message(self):
        self.end(self.half(b"1"))
        self.half(b"2")
        self.half(b"3", CHECK_IMMUNITY_TIME_IN_SECONDS="150")
        self.check()
        self.check()
        self.half(b"4")
        self.restart(clean=False)
        self.join()
        self.assertEqual((self.asked(), self.bodies()), ([b"2", b"3", b"4"], [b"1"]))
        for copy in [half for half in self.read(HALF) if half.body != b"1"]:
            self.end(copy)
        self.assertEqual((self.bodies(), self.check()), ([b"1", b"2", b"3", b"4"], []))
        self.assertEqual(self.progress(), [11, 11])

    def test_lost_progress_checks_no_ended_message(self):
        self.half(b"1")
        self.check()
        self.end(self.read(HALF)[1])
        self.restart(clean=False)
        self.join()
        self.assertEqual((self.check(), self.bodies(), self.progress()), ([], [b"1"], [2, 1]))

    def test_messages_with_same_key_are_not_copies(self):
        self.half(b"1")
        self.check()
        self.half(b"1")
        self.half(b"2", born_ms=self.read(HALF)[0].born_timestamp)
        self.restart(clean=False)
        self.join()
        self.assertEqual(self.asked(), [b"1", b"1", b"2"])

    def test_check_progress_is_written_after_flush(self):
        self.half()
        self.check()
        flushed = self.broker.store.wait_until_flushed
        self.broker.store.wait_until_flushed = lambda end: False
        self.assertEqual(self.progress(), [-1, -1])
        self.assertEqual(len(self.check()), 1)
        self.broker.store.wait_until_flushed = flushed
        self.assertEqual(self.progress(), [2, 0])

    def test_check_progress_is_settable_by_administrator(self):
        self.half(b"1")
        self.check()
        self.assertEqual(self.progress(), [1, 0])
        self.broker.offsets.commit("127.0.0.1", GROUP, HALF, 0, 0)
        self.assertEqual(self.asked(), [b"1", b"1"])

    def test_check_progress_outside_queues_is_corrected(self):
        """No message is skipped, and none is checked twice."""
        self.end(self.half(b"1"))
        for offset in (99, -5):
            self.broker.offsets.commit("127.0.0.1", GROUP, HALF, 0, offset)
            self.broker.offsets.commit("127.0.0.1", GROUP, OP, 0, offset)
            self.assertEqual(self.check(), [])
            self.assertEqual(self.progress(), [1, 1])
        self.half(b"2")
        self.broker.offsets.commit("127.0.0.1", GROUP, HALF, 0, 99)
        self.broker.offsets.commit("127.0.0.1", GROUP, OP, 0, 99)
        self.assertEqual(self.asked(), [b"2"])

    def test_recreated_op_queue_is_read_from_its_begin(self):
        self.end(self.half(b"1"))
        self.broker.store.delete_topic(OP)
        self.half(b"2")
        self.assertEqual(self.read(OP), [])
        # The check waits while any record is not dispatched, its own records included.
        asked = self.asked() + self.asked(0)
        self.assertEqual(asked, [b"1", b"2"])
        self.end(self.read(HALF)[-1])
        self.assertEqual(self.bodies().count(b"2"), 1)

    def test_check_of_empty_broker_does_nothing(self):
        self.assertEqual((self.check(), self.progress()), ([], [-1, -1]))
        config = self.broker.topics.select(HALF)
        self.assertEqual((config.read_queue_nums, config.write_queue_nums, config.perm), (1, 1, 6))


class TroubleTests(CheckTestCase):
    def test_full_disk_suspends_checks(self):
        half = self.half(b"1")
        self.half(b"2")
        self.broker.set_disk_full(True)
        self.assertEqual([self.asked() for _ in range(3)], [[], [], []])
        self.assertEqual((len(self.read(HALF)), self.progress()), (2, [-1, -1]))
        self.broker.set_disk_full(False)
        self.end(half)
        self.assertEqual((self.asked(), self.bodies()), ([b"2"], [b"1"]))

    def test_full_disk_delays_giving_up(self):
        self.broker.settings.broker.transaction_check_max = 1
        self.half(b"1")
        self.check()
        self.broker.set_disk_full(True)
        self.check()
        self.broker.set_disk_full(False)
        self.assertEqual(self.read(GIVEN_UP), [])
        self.check()
        self.assertEqual([kept.body for kept in self.read(GIVEN_UP)], [b"1"])

    def test_damaged_half_message_is_skipped(self):
        half = self.half(b"broken")
        self.half(b"whole")
        file = self.broker.store.commit_log.queue.find(half.physical_offset)
        with open(file.path, "r+b") as log:
            log.seek(half.physical_offset + log.read().index(b"broken"))
            log.write(b"brokeN")
        self.assertEqual((self.asked(), self.progress()), ([b"whole"], [2, 0]))
        self.flushLoggedErrors()

    def test_search_for_records_of_damaged_entries_skips_no_message(self):
        self.check()
        self.end(self.half(b"ended"))
        self.half(b"open")
        searches = search_for(self.broker.store, OP, 0, 3), search_for(self.broker.store, HALF, 1, 2)
        self.assertEqual((self.asked(), self.progress()), ([b"open"], [2, 1]))
        self.assertEqual([len(each) for each in searches], [3, 2])

    def test_search_for_copies_waits_for_records_of_damaged_entries(self):
        self.half(b"1")
        self.check()
        self.restart(clean=False)
        self.join()
        done = search_for(self.broker.store, HALF, 1, 3)
        self.assertEqual((self.asked(), len(done)), ([b"1"], 3))

    def test_half_message_without_valid_queue_is_not_checked(self):
        half = self.half(b"lost")
        table = {**half.properties_map(), "REAL_QID": "two"}
        self.end(half)
        self.put(renewed(half, table))
        self.half(b"whole")
        self.assertEqual(self.asked(), [b"whole"])

    def test_half_message_without_room_for_check_count_is_checked(self):
        full = 32_767 - 400
        length = len(self.half(b"long", filler="x" * full).properties)
        self.end(self.read(HALF)[0], ROLLBACK)
        self.half(b"longest", filler="x" * (full + 32_767 - length))
        self.half(b"short")
        self.assertEqual(len(self.read(HALF)[1].properties), 32_767)
        self.assertEqual([self.asked() for _ in range(2)], [[b"longest", b"short"]] * 2)
        self.end(self.read(HALF)[-2])
        self.assertEqual((self.asked(), self.bodies()), ([b"short"], [b"longest"]))

    def test_half_message_over_size_limit_is_skipped(self):
        self.half(b"long" * 100)
        self.half(b"short")
        self.patch(self.broker.settings.store, "max_message_size", 300)
        self.assertEqual((self.asked(), self.progress()), ([b"short"], [2, 0]))

    def test_unreadable_marks_are_skipped(self):
        half = self.half(b"1")
        for body in (b"", b"x", b"-1"):
            mark = end_mark(0, self.broker.now_ms(), STORE_HOST)
            mark.body = body
            self.put(mark)
        self.end(half)
        self.assertEqual((self.check(), self.progress()), ([], [1, 4]))

    def test_failing_check_is_repeated(self):
        self.half(b"1")
        read = self.broker.store.message_of

        def failing(*_):
            raise OSError("unreadable")

        self.broker.store.message_of = failing
        self.broker.clock.advance(60)
        self.broker.transactions.tick()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.broker.store.message_of = read
        self.assertEqual(self.asked(), [b"1"])

    def put(self, message: MessageInner):
        self.assertEqual(self.broker.store.put_messages([message])[0].status, PutStatus.PUT_OK)
        self.broker.settle()


class LateEndsTests(SynchronousTestCase):
    def test_oldest_late_ends_are_forgotten(self):
        self.patch(op_messages, "_LATE_ENDS_LIMIT", 2)
        late = LateEnds()
        for offset in (5, 6, 7):
            late.add(offset)
        self.assertEqual([late.take(offset) for offset in (5, 6, 7, 7)], [False, True, True, False])
