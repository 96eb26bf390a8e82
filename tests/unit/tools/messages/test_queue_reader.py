"""What ``rocketd consume`` does with messages that it cannot read."""

from contextlib import redirect_stderr
from io import StringIO
from types import SimpleNamespace

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.sysflag import COMPRESSED
from rocketd.remoting.bodies.tables import MessageQueue
from rocketd.tools.messages.positions import StartPosition
from rocketd.tools.messages.queue_reader import TopicReader, readable
from tests.support.client_cluster import ClientTestCase


def record(offset, body, sys_flag=0):
    host = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    return SimpleNamespace(
        body=body, sys_flag=sys_flag, queue_offset=offset, properties=b"", topic="T", physical_offset=0, flag=0,
        store_host=host, born_host=host, born_timestamp=1, store_timestamp=2, store_size=3, reconsume_times=0,
    )  # fmt: skip


class TopicReaderTests(ClientTestCase):
    def test_damaged_message_is_skipped_and_named(self):
        got, err = [], StringIO()
        self.cluster.brokers.remove("b")

        def received(message):
            got.append(message.body)
            return len(got) < 2

        start = StartPosition("earliest")
        reading = Deferred.fromCoroutine(TopicReader(self.client, "T", "*", start, start, 32, received).run())
        with redirect_stderr(err):
            self.cluster.deliver("a:10911", [(b"one", ""), (b"wrong", ""), (b"two", "")], 0, damaged=[1])
        self.successResultOf(reading)
        self.assertEqual(got, [b"one", b"two"])
        self.assertIn("a: the record with offset 1 in queue 0, at 101 of the log: the CRC", err.getvalue())


class ReadableTests(SynchronousTestCase):
    def test_message_that_cannot_be_decompressed_is_skipped_and_named(self):
        queue, err = MessageQueue("T", "b", 1), StringIO()
        records = [record(4, b"one"), record(5, b"junk", COMPRESSED), record(6, b"two")]
        with redirect_stderr(err):
            messages = readable(records, queue)
        self.assertEqual([(message.queue_offset, message.body) for message in messages], [(4, b"one"), (6, b"two")])
        self.assertIn("b queue 1 offset 5 is skipped: message ", err.getvalue())
        self.assertEqual(err.getvalue().count("\n"), 1)
