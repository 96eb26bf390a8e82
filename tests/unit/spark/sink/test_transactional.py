from array import array

from twisted.trial.unittest import SynchronousTestCase

from rocketd.remoting.wire.codes import RequestCode, ResponseCode
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.spark.ranges import Queue
from rocketd.spark.sink import transactional
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.problems import SinkError
from rocketd.spark.sink.transactional import Prepared
from rocketd.spark.wire import close_connections
from tests.support.scripted_server import ScriptedServer, offset_answer

QUEUE = Queue("t", "b", 0)
COMMIT, ROLL_BACK = "8", "12"


class EndTests(SynchronousTestCase):
    """The ends of ten half messages, of which four are taken at once."""

    def setUp(self):
        self.patch(transactional, "_ENDED_AT_ONCE", 4)
        self.refusals = {}
        self.server = ScriptedServer(
            {RequestCode.GET_MAX_OFFSET: offset_answer(0), RequestCode.END_TRANSACTION: self.answer}
        )
        self.addCleanup(self.server.close)
        self.addCleanup(close_connections)
        self.options = WriteOptions.parse(
            {"namesrv": self.server.address, "topic": "t", "delivery": "transactional", "retries": "1"}
        )
        self.prepared = [self.of(range(7)), self.of(range(7, 10))]
        self.waited = []

    def of(self, numbers):
        return Prepared((QUEUE,), array("H", [0] * len(numbers)), array("q", numbers), array("q", numbers))

    def answer(self, request):
        refusals = self.refusals.get(request.ext_fields["tranStateTableOffset"], [])
        return RemotingCommand.response(*(refusals.pop(0) if refusals else (ResponseCode.SUCCESS,)))

    def ended(self):
        ends = [one.ext_fields for one in self.server.asked if one.code == RequestCode.END_TRANSACTION]
        return [(int(one["tranStateTableOffset"]), one["commitOrRollback"]) for one in ends]

    def test_all_are_committed_in_order_some_at_a_time(self):
        transactional.commit(self.options, self.prepared, self.waited.append)
        self.assertEqual(self.ended(), [(number, COMMIT) for number in range(10)])
        self.assertEqual(self.waited, [])

    def test_half_refused_once_is_committed_before_the_next_group(self):
        self.refusals["2"] = [(ResponseCode.SYSTEM_BUSY, "busy")]
        transactional.commit(self.options, self.prepared, self.waited.append)
        self.assertEqual([number for number, _ in self.ended()], [0, 1, 2, 3, 2, 4, 5, 6, 7, 8, 9])
        self.assertEqual(len(self.waited), 1)

    def test_uncommitted_halves_are_counted(self):
        self.refusals["5"] = [(ResponseCode.NO_PERMISSION, "no")]
        error = self.assertRaises(SinkError, transactional.commit, self.options, self.prepared, self.waited.append)
        self.assertIn("7 of 10 messages are committed, and 3 are not", str(error))

    def test_all_are_rolled_back(self):
        transactional.roll_back(self.options, self.prepared)
        self.assertEqual(self.ended(), [(number, ROLL_BACK) for number in range(10)])
