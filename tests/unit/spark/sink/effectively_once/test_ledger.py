import os
from contextlib import closing

from twisted.trial import unittest

from rocketd.spark.ranges import Queue
from rocketd.spark.sink.effectively_once import ledger as ledgers
from rocketd.spark.sink.effectively_once.ledger import Begun, Ledger, LedgerOwner
from rocketd.spark.sink.problems import SinkError

QUEUES = ((Queue("T", "b", 0), 5), (Queue("T", "b", 1), 9))
WHO = LedgerOwner("s", ("a:1", "b:2"), "T", "q")


def opened(path, identity=WHO):
    return closing(Ledger(path, identity))


class LedgerTests(unittest.TestCase):
    def setUp(self):
        self.folder = self.mktemp()
        os.makedirs(self.folder)
        self.path = os.path.join(self.folder, "ledger")

    def test_a_batch_goes_from_begun_to_done(self):
        begun = Begun("3", (("3/0-0-x.arrow", 7), ("3/1-0-y.arrow", 2)), QUEUES)
        self.assertEqual(begun.rows, 9)
        with opened(self.path) as ledger:
            self.assertIsNone(ledger.open_batch)
            ledger.begin(begun)
            ledger.note_sent({0: (4, 8), 1: (5, 10)})
            ledger.note_sent({0: (6, 9)})
        with opened(self.path) as ledger:
            self.assertEqual(ledger.open_batch.begun, begun)
            self.assertEqual(ledger.open_batch.sent, {0: (6, 9), 1: (5, 10)})
            self.assertFalse(ledger.is_done("3"))
            ledger.finish()
            self.assertTrue(ledger.is_done("3"))
        with opened(self.path) as ledger:
            self.assertIsNone(ledger.open_batch)
            self.assertTrue(ledger.is_done("3"))
            self.assertTrue(ledger.is_done("2"))
            self.assertFalse(ledger.is_done("4"))
            self.assertFalse(ledger.is_done("job-3"))

    def test_jobs_are_done_each_by_its_name(self):
        with opened(self.path) as ledger:
            for job in ("job-7", "job-a"):
                ledger.begin(Begun(job, (), ()))
                ledger.finish()
        with opened(self.path) as ledger:
            self.assertEqual([ledger.is_done(f"job-{name}") for name in "7a6b"], [True, True, False, False])

    def test_ledger_cut_at_any_byte_keeps_earlier_lines(self):
        with opened(self.path) as ledger:
            ledger.begin(Begun("1", (("1/f", 1),), QUEUES))
            ledger.note_sent({0: (1, 6)})
            ledger.note_sent({0: (2, 7)})
            ledger.finish()
            ledger.begin(Begun("2", (("2/f", 1),), QUEUES))
        with open(self.path, "rb") as file:
            whole = file.read()
        states = [(False, None), (False, {}), (False, {0: (1, 6)}), (False, {0: (2, 7)}), (True, None), (True, {})]
        for size in range(len(whole) + 1):
            with open(self.path, "wb") as file:
                file.write(whole[:size])
            lines = whole[:size].count(b"\n")
            done, sent = states[max(lines, 1) - 1]
            with opened(self.path) as ledger:
                self.assertEqual(ledger.is_done("1"), done, size)
                self.assertEqual(None if ledger.open_batch is None else ledger.open_batch.sent, sent, size)
                if ledger.open_batch is None:
                    ledger.begin(Begun("5", (), ()))
                ledger.finish()
            with opened(self.path) as ledger:
                self.assertIsNone(ledger.open_batch)

    def test_a_tail_of_zeros_is_cut_off(self):
        with opened(self.path) as ledger:
            ledger.begin(Begun("1", (), ()))
        with open(self.path, "ab") as file:
            file.write(bytes(100))
        with opened(self.path) as ledger:
            ledger.finish()
        with opened(self.path) as ledger:
            self.assertTrue(ledger.is_done("1"))

    def test_damage_before_good_lines_raises(self):
        with opened(self.path) as ledger:
            ledger.begin(Begun("1", (), ()))
            ledger.finish()
        with open(self.path, "rb") as file:
            data = bytearray(file.read())
        second = data.index(b"\n") + 1
        data[second + 20] ^= 1
        with open(self.path, "wb") as file:
            file.write(data)
        error = self.assertRaises(SinkError, Ledger, self.path, WHO)
        self.assertIn("damaged in line 2", str(error))
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), bytes(data))

    def test_ledger_of_another_sink_is_refused(self):
        with opened(self.path):
            pass
        for other, word in (
            (LedgerOwner("s", ("a:1",), "U", "q"), "topic U"),
            (LedgerOwner("s", ("a:1",), "", "q"), "column topic"),
            (LedgerOwner("s", ("c:1",), "T", "q"), "a:1;b:2"),
            (LedgerOwner("s", ("a:1",), "T", "r"), "query r"),
            (LedgerOwner("s", ("a:1",), "T", ""), "a batch write"),
        ):
            self.assertIn(word, str(self.assertRaises(SinkError, Ledger, self.path, other)))
        with opened(self.path, LedgerOwner("s", ("b:2", "c:1"), "T", "q")):
            pass

    def test_long_ledger_is_rewritten_without_finished_batches(self):
        self.patch(ledgers, "_REWRITTEN_OVER", 2000)
        with opened(self.path) as ledger:
            ledger.begin(Begun("job-x", (), ()))
            ledger.finish()
            for number in range(100):
                ledger.begin(Begun(str(number), ((f"{number}/f", 1),), QUEUES))
                ledger.note_sent({0: (0, number)})
                ledger.finish()
        self.assertLess(os.path.getsize(self.path), 3000)
        with opened(self.path) as ledger:
            self.assertEqual([ledger.is_done(b) for b in ("job-x", "0", "99", "100")], [True, True, True, False])
        self.assertEqual(os.listdir(self.folder), ["ledger"])
