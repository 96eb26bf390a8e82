"""The pipeline's client and misbehaving servers: bad answers are never taken for messages, or for their loss."""

import struct

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.spark.errors import ClusterError, DataLossError, NoAnswerError
from rocketd.spark.ranges import Queue, QueueRange, ReadPlan
from rocketd.spark.wire import ClusterClient, ClusterOptions, RawMessage, Sender, close_connections, read, read_range
from rocketd.spark.wire.connection import connection_to
from rocketd.store.format.message import MessageInner
from rocketd.store.format.record import encode_record
from tests.support.scripted_server import Cut, ScriptedServer, offset_answer

QUEUE = Queue("t", "b", 0)
HOST = bytes((127, 0, 0, 1, 0, 0, 0, 80))


def records(*offsets):
    """Records of these queue offsets, each with its offset as its body."""
    return b"".join(
        encode_record(
            MessageInner("t", 0, 0, 0, 1, HOST, 0, 0, b"%d" % offset, b"", 0),
            HOST,
            offset,
            1000 * offset,
            1,
        )
        for offset in offsets
    )


def found(following, body):
    fields = {"nextBeginOffset": str(following), "minOffset": "0", "maxOffset": "9", "suggestWhichBrokerId": "0"}
    return RemotingCommand.response(0, "FOUND", fields, body)


def nothing(code, remark, following):
    answer = found(following, None)
    answer.code, answer.remark = code, remark
    return answer


class AnswersTests(SynchronousTestCase):
    def serve(self, pulls=None, upper=6, lower=0):
        """Return a cluster with a queue of six messages; `pulls` maps an offset to the function for its answer."""
        answers = {
            RequestCode.GET_MAX_OFFSET: offset_answer(upper),
            RequestCode.GET_MIN_OFFSET: offset_answer(lower),
            RequestCode.GET_BROKER_RUNTIME_INFO: lambda request: RemotingCommand.response(body=b'{"table":{}}'),
            RequestCode.PULL_MESSAGE: lambda request: pulls[int(request.ext_fields["queueOffset"])](),
        }
        self.server = ScriptedServer(answers)
        self.addCleanup(self.server.close)
        self.addCleanup(close_connections)
        return ClusterClient(ClusterOptions(self.server.address, timeout=20.0, patience=0.3))

    def read(self, cluster, end=6, on_loss=None, **plan):
        part = QueueRange(QUEUE, 0, end)
        found = []
        for batch in read_range(cluster, part, ReadPlan(("queue_offset", "body"), **plan), on_loss):
            self.assertEqual(batch.column(1).to_pylist(), [b"%d" % offset for offset in batch.column(0).to_pylist()])
            found += batch.column(0).to_pylist()
        return found

    def test_holes_are_losses(self):
        cluster = self.serve({0: lambda: found(3, records(0, 2)), 3: lambda: found(6, records(4))})
        lost = []
        self.assertEqual(self.read(cluster, on_loss=lost.append), [0, 2, 4])
        self.assertEqual(lost, [QueueRange(QUEUE, 1, 2), QueueRange(QUEUE, 3, 4), QueueRange(QUEUE, 5, 6)])
        with self.assertRaisesRegex(DataLossError, r"1 messages .* t/b/0\[1, 2\): the broker leaves it out"):
            self.read(cluster)

    def test_gaps_of_filtered_offsets_are_not_losses(self):
        cluster = self.serve({0: lambda: found(3, records(0, 2)), 3: lambda: found(6, records(4))})
        self.assertEqual(self.read(cluster, sql92="a = 1"), [0, 2, 4])

    def test_more_than_was_asked_for_is_cut(self):
        cluster = self.serve({0: lambda: found(6, records(*range(6)))})
        self.assertEqual(self.read(cluster, end=4), [0, 1, 2, 3])

    def test_pull_of_removed_messages_is_retried_once(self):
        removing = lambda: nothing(ResponseCode.PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING", 2)  # noqa: E731
        once = iter([removing(), found(6, records(*range(6)))])
        self.assertEqual(self.read(self.serve({0: lambda: next(once)})), list(range(6)))
        lost = []
        cluster = self.serve({0: removing, 2: lambda: found(6, records(*range(2, 6)))})
        self.assertEqual(self.read(cluster, on_loss=lost.append), [2, 3, 4, 5])
        self.assertEqual(lost, [QueueRange(QUEUE, 0, 2)])

    def test_slave_without_reads_reports_no_loss(self):
        """As slaves are by default: they tell their bounds, and that they have found messages, and keep those."""
        cluster = self.serve({0: lambda: nothing(ResponseCode.PULL_RETRY_IMMEDIATELY, "FOUND", 6)})
        self.server.brokers = {0: "127.0.0.1:1", 1: self.server.address}
        lost = []
        with self.assertRaisesRegex(NoAnswerError, "127.0.0.1:1 cannot be reached"):
            self.read(cluster, on_loss=lost.append)
        self.assertEqual(lost, [])
        self.assertEqual([one.code for one in self.server.asked].count(RequestCode.PULL_MESSAGE), 1)

    def test_pull_without_progress_raises(self):
        cluster = self.serve({0: lambda: nothing(ResponseCode.PULL_NOT_FOUND, "OFFSET_FOUND_NULL", 0)})
        with self.assertRaisesRegex(ClusterError, r"t/b/0: nothing comes from offset 0 on \(OFFSET_FOUND_NULL\)"):
            self.read(cluster)

    def test_offsets_outside_the_bounds_are_not_pulled(self):
        cluster = self.serve({2: lambda: found(4, records(2, 3))}, upper=4, lower=2)
        lost = []
        self.assertEqual(self.read(cluster, on_loss=lost.append), [2, 3])
        self.assertEqual(lost, [QueueRange(QUEUE, 0, 2), QueueRange(QUEUE, 4, 6)])
        pulled = [one for one in self.server.asked if one.code == RequestCode.PULL_MESSAGE]
        self.assertEqual([one.ext_fields["queueOffset"] for one in pulled], ["2"])

    def test_malformed_records_raise(self):
        whole = records(0, 1)
        for body, text in (
            (whole[:-3], "holds no whole records"),
            (b"\0" * 200, "holds no whole records"),
            (records(1, 0), "not in order"),
            (records(0, 0), "not in order"),
        ):
            cluster = self.serve({0: lambda body=body: found(6, body)})
            with self.assertRaisesRegex(ClusterError, text):
                self.read(cluster)

    def test_malformed_answers_raise(self):
        for raw, text in (
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak RocketMQ's protocol"),
            (struct.pack(">II", 20, 16) + b"no JSON at all..", "does not speak RocketMQ's protocol"),
            (None, "closed the connection before it answered"),
        ):
            cluster = self.serve({0: lambda raw=raw: raw})
            with self.assertRaisesRegex(NoAnswerError, text) as caught:
                self.read(cluster)
            self.assertTrue(caught.exception.retriable)

    def test_connection_cut_within_an_answer_is_reopened(self):
        pulls = iter([Cut(found(6, records(*range(6)))), found(6, records(*range(6)))])
        self.assertEqual(self.read(self.serve({0: lambda: next(pulls)})), list(range(6)))

    def test_slow_reader_reopens_idle_connection(self):
        """A broker closes connections that are idle; that was not the broker's failure, and is not counted as such."""
        clock = Clock()
        self.patch(read, "monotonic", clock.seconds)
        pulls = {0: lambda: found(3, records(0, 1, 2)), 3: lambda: next(later)}
        later = iter([None, found(6, records(3, 4, 5))])
        batches = read_range(self.serve(pulls), QueueRange(QUEUE, 0, 6), ReadPlan(("queue_offset",), batch_bytes=1))
        self.assertEqual(next(batches).column(0).to_pylist(), [0, 1, 2])
        clock.advance(1000)
        self.assertEqual([batch.column(0).to_pylist() for batch in batches], [[3, 4, 5]])

    def test_malformed_headers_and_bodies_raise(self):
        cluster = self.serve({0: lambda: found("x", records(0))})
        with self.assertRaisesRegex(ClusterError, "makes no sense: .*nextBeginOffset"):
            self.read(cluster)
        cluster = self.serve(upper="many")
        with self.assertRaisesRegex(ClusterError, "makes no sense: .*offset"):
            self.read(cluster)
        self.server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda request: RemotingCommand.response(body=b"{")
        with self.assertRaisesRegex(ClusterError, "makes no sense"):
            cluster.route("t")

    def test_answers_in_another_order(self):
        held = []

        def answer(request):
            held.append(request)
            if len(held) < 2:
                return b""
            parts = [RemotingCommand.response(0, one.remark).answering(one).encode() for one in reversed(held)]
            return b"".join(parts)

        cluster = self.serve()
        self.server.answers[RequestCode.GET_MAX_OFFSET] = answer
        connection = connection_to(self.server.address, cluster.options)
        numbers = [connection.submit(RequestCode.GET_MAX_OFFSET) for _ in range(2)]
        self.assertEqual([connection.wait(one, RequestCode.GET_MAX_OFFSET).opaque for one in numbers], numbers)

    def test_closed_idle_connection_is_not_reused(self):
        cluster = self.serve()
        first = connection_to(self.server.address, cluster.options)
        self.server.answers[RequestCode.HEART_BEAT] = lambda request: None
        with self.assertRaises(NoAnswerError):
            first.request(RequestCode.HEART_BEAT)
        self.assertTrue(first.closed)
        self.assertIsNot(connection_to(self.server.address, cluster.options), first)


class SendsTests(SynchronousTestCase):
    serve = AnswersTests.serve

    def test_no_answer_leaves_a_send_in_doubt(self):
        cluster = self.serve()
        self.server.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: None
        sender = Sender(cluster)
        with self.assertRaises(NoAnswerError) as caught:
            sender.send(QUEUE, RawMessage("t", b"x"))
        self.assertTrue(caught.exception.doubtful)
        self.assertEqual(self._sends(), 1)
        sender.submit(QUEUE, [RawMessage("t", b"x")], "token")
        (receipt,) = sender.finish()
        self.assertEqual((receipt.token, receipt.error.doubtful, receipt.positions), ("token", True, ()))

    def test_a_busy_broker_is_tried_again(self):
        cluster = self.serve()
        busy = RemotingCommand.response(ResponseCode.SYSTEM_BUSY, "busy")
        stored = {"msgId": "7F0000010000005000000000000003E8", "queueId": "0", "queueOffset": "1"}
        answers = iter([busy, RemotingCommand.response(ext_fields=stored)])
        self.server.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: next(answers)
        position = Sender(cluster).send(QUEUE, RawMessage("t", b"x"))
        self.assertEqual((position.queue_offset, position.commit_log_offset), (1, 1000))
        self.assertEqual(self._sends(), 2)

    def test_message_sent_again_keeps_its_place(self):
        cluster = self.serve()
        refused = [True]

        def answer(request):
            if refused and request.body == b"2":
                refused.clear()
                return RemotingCommand.response(ResponseCode.SYSTEM_BUSY, "busy")
            stored = {"msgId": "7F0000010000005000000000000003E8", "queueId": "0", "queueOffset": "1"}
            return RemotingCommand.response(ext_fields=stored)

        self.server.answers[RequestCode.SEND_MESSAGE_V2] = answer
        items = [(QUEUE, [RawMessage("t", b"%d" % number)]) for number in range(5)]
        receipts = list(Sender(cluster).deliver(items, repeat_doubtful=False))
        self.assertEqual([receipt.token for receipt in receipts], list(range(5)))
        bodies = [one.body for one in self.server.asked if one.code == RequestCode.SEND_MESSAGE_V2]
        self.assertEqual(bodies, [b"0", b"1", b"2", b"2", b"3", b"4"])

    def test_doubtful_send_is_left_to_the_caller(self):
        cluster = self.serve()
        self.server.answers[RequestCode.SEND_MESSAGE_V2] = lambda request: None
        with self.assertRaises(NoAnswerError) as caught:
            list(Sender(cluster).deliver([(QUEUE, [RawMessage("t", b"x")])], repeat_doubtful=False))
        self.assertTrue(caught.exception.doubtful)
        self.assertEqual(self._sends(), 1)
        with self.assertRaisesRegex(NoAnswerError, "tried"):
            list(Sender(cluster).deliver([(QUEUE, [RawMessage("t", b"x")])], repeat_doubtful=True))
        self.assertGreater(self._sends(), 3)

    def test_batch_stored_in_part_raises(self):
        cluster = self.serve()
        stored = {"msgId": "7F0000010000005000000000000003E8", "queueId": "0", "queueOffset": "1"}
        self.server.answers[RequestCode.SEND_BATCH_MESSAGE] = lambda request: RemotingCommand.response(
            ext_fields=stored
        )
        with self.assertRaisesRegex(ClusterError, "stored 1 of 2 messages"):
            Sender(cluster).send_batch(QUEUE, [RawMessage("t", b"x"), RawMessage("t", b"y")])

    def _sends(self):
        return sum(one.code == RequestCode.SEND_MESSAGE_V2 for one in self.server.asked)
