"""Effectively-once delivery to scripted brokers in memory, with answers and crashes chosen by the test."""

import os
import shutil
from collections import Counter
from functools import partial
from itertools import count

from twisted.trial import unittest

from rocketd.spark.errors import ClusterError, DataLossError
from rocketd.spark.ranges import Queue
from rocketd.spark.sink.effectively_once.delivery import EffectivelyOnce
from rocketd.spark.sink.effectively_once.staging import Staging
from rocketd.spark.sink.message import Outgoing
from rocketd.spark.sink.message_output import Receipt
from rocketd.spark.sink.options import WriteOptions
from rocketd.spark.sink.problems import RowError, SinkError

A, B = Queue("T", "a", 0), Queue("T", "b", 0)


class Crash(BaseException):
    """The process ends here."""


class Brokers:
    """Two queues, and a fault for each step: none, a crash `before` or `after` it, or a send error."""

    def __init__(self):
        self.logs = {A: [b"other\x01x"] * 3, B: []}
        self.minimum = 0
        self.steps = count()
        self.faults = {}
        self.awaited = Counter()

    def step(self, act):
        fault = self.faults.get(next(self.steps))
        if fault == "before":
            raise Crash
        if fault == "refused":
            return ClusterError("busy", 2, retriable=True)
        if fault == "never":
            return ClusterError("illegal", 13)
        result = act()
        if fault == "after":
            raise Crash
        return ClusterError("no answer", retriable=True, doubtful=True) if fault == "unheard" else result

    def queues(self, topic):
        return [A, B]

    def end(self, queue):
        return len(self.logs[queue])

    def send(self, parcels):
        return {queue: self.step(partial(self._append, queue, parcel)) for queue, parcel in parcels.items()}

    def _append(self, queue, parcel):
        start = len(self.logs[queue])
        self.logs[queue] += [b"%s|%s" % (message.properties, message.body) for message in parcel]
        self.logs[queue].append(b"OTHER\x01y")  # others send too
        return Receipt(start, 0)

    def properties(self, queue, start, end):
        if start < self.minimum:
            raise DataLossError("gone")
        yield from ((offset, self.logs[queue][offset].split(b"|")[0]) for offset in range(start, end))

    def await_processed(self, broker):
        self.awaited[broker] += 1

    def bodies(self):
        return [[text.split(b"|")[1] for text in log if b"|" in text] for log in self.logs.values()]


class ExactTests(unittest.TestCase):
    def setUp(self):
        self.root = self.mktemp()
        os.makedirs(os.path.join(self.root, "s"))
        self.root = os.path.abspath(self.root)
        self.brokers = Brokers()
        self.now = 0.0
        self.staging = Staging(os.path.join(self.root, "s"))

    def sink(self, query="q", **more):
        given = {
            "namesrv": "n:1", "topic": "T", "delivery": "effectively-once", "sinkId": "s", "stagingDir": self.root,
            "batchBytes": "1024", "retryTimeout": "10s", "lockTimeout": "1s", **more,
        }  # fmt: skip
        return EffectivelyOnce(
            WriteOptions.parse(given, stream=True), "s", query, lambda: self.brokers, lambda: self.now, self.pause
        )

    def pause(self, seconds):
        self.now += seconds

    def stage(self, batch, first, rows, part=0, **more):
        messages = [
            Outgoing("T", b"%04d" % n, b"UNIQ_KEY\x01" + b"k" * 200, **more) for n in range(first, first + rows)
        ]
        return self.staging.write(batch, f"{part}-0", messages)

    def expect(self, rows):
        found = self.brokers.bodies()
        self.assertEqual(found, [[b"%04d" % n for n in range(rows) if n % 2 == place] for place in range(2)])

    def arrow_files(self):
        return [name for _, _, files in os.walk(self.staging.folder) for name in files if name.endswith(".arrow")]

    def test_partitions_are_sent_in_order_and_a_batch_once(self):
        sink = self.sink()
        sink.commit("0", [self.stage("0", 0, 10), self.stage("0", 10, 0, 1), self.stage("0", 10, 4, 2)])
        self.expect(14)
        sink.commit("0", [self.stage("0", 0, 10)])
        self.expect(14)
        self.assertEqual(self.arrow_files(), [])
        sink.commit("1", [])
        self.stage("2", 0, 5)  # of an attempt that lost
        sink.commit("2", [self.stage("2", 14, 6)])
        self.expect(20)
        self.assertEqual(self.arrow_files(), [])

    def test_crash_at_any_send_neither_loses_nor_doubles(self):
        for fault in ("before", "after"):
            for first in range(12):
                for second in range(first + 1, first + 6):
                    self.setUp()
                    self.brokers.faults = {first: fault, second: "after"}
                    crashes = 0
                    while True:
                        # Spark runs the tasks again before it calls commit again.
                        staged = [self.stage("0", 0, 15), self.stage("0", 15, 6, 1)]
                        try:
                            self.sink().commit("0", staged)
                            break
                        except Crash:
                            crashes += 1
                    self.expect(21)
                    self.assertGreaterEqual(crashes, 1 if first < 6 else 0)
                    self.assertEqual(self.arrow_files(), [])

    def test_a_crash_at_any_write_of_the_ledger_and_while_sweeping(self):
        real = os.fsync, shutil.rmtree
        for number in range(14):
            for late in (False, True):
                self.setUp()
                calls = count()

                def crashing(act, *args, calls=calls, number=number, late=late, **more):
                    its_turn = next(calls) == number
                    if its_turn and not late:
                        raise Crash
                    act(*args, **more)
                    if its_turn:
                        raise Crash

                for batch in range(3):
                    while True:
                        staged = [self.stage(str(batch), 7 * batch, 7)]
                        self.patch(os, "fsync", partial(crashing, real[0]))
                        self.patch(shutil, "rmtree", partial(crashing, real[1]))
                        try:
                            self.sink().commit(str(batch), staged)
                            break
                        except Crash:
                            pass
                        finally:
                            os.fsync, shutil.rmtree = real
                self.assertGreater(next(calls), 12)
                found = self.brokers.bodies()
                self.assertEqual(sorted(found[0] + found[1]), [b"%04d" % n for n in range(21)])
                self.assertEqual(self.arrow_files(), [])

    def test_progress_not_written_is_searched_for(self):
        self.brokers.faults = {4: "after"}
        staged = [self.stage("0", 0, 21)]
        self.assertRaises(Crash, self.sink().commit, "0", staged)
        path = os.path.join(self.staging.folder, "ledger")
        with open(path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
        with open(path, "wb") as file:
            file.writelines(line for line in lines if b'"sent"' not in line)
        self.sink().commit("0", [self.stage("0", 0, 21)])
        self.expect(21)

    def test_missing_answer_is_looked_up_and_refusal_is_retried(self):
        self.brokers.faults = {0: "unheard", 1: "refused", 2: "unheard", 5: "refused", 6: "refused", 7: "unheard"}
        self.sink().commit("0", [self.stage("0", 0, 30)])
        self.expect(30)
        self.assertGreaterEqual(sum(self.brokers.awaited.values()), 3)

    def test_batch_not_sent_stays_begun(self):
        self.brokers.faults = {3: "never"}
        staged = [self.stage("0", 0, 21)]
        error = self.assertRaises(SinkError, self.sink().commit, "0", staged)
        self.assertIn("start the query again", str(error))
        self.sink().abort("0", staged)
        self.assertEqual(len(self.arrow_files()), 1)
        self.sink().commit("0", [self.stage("0", 0, 21)])
        self.expect(21)

    def test_unreachable_broker_is_given_up_in_time(self):
        self.brokers.faults = dict.fromkeys(range(1000), "refused")
        self.assertRaises(SinkError, self.sink().commit, "0", [self.stage("0", 0, 3)])
        self.assertGreater(self.now, 10)
        self.assertLess(self.now, 30)

    def test_queue_with_lost_messages_raises(self):
        self.brokers.faults = {4: "after"}
        self.assertRaises(Crash, self.sink().commit, "0", [self.stage("0", 0, 21)])
        self.brokers.minimum = 100
        self.assertRaises(SinkError, self.sink().commit, "0", [])
        self.brokers.minimum = 0
        kept, self.brokers.logs[B] = self.brokers.logs[B], []
        self.assertIn("made anew", str(self.assertRaises(SinkError, self.sink().commit, "0", [])))
        self.brokers.logs[B] = kept
        self.sink().commit("0", [])
        self.expect(21)

    def test_batch_behind_a_begun_one_is_refused(self):
        self.brokers.faults = {4: "after"}
        self.assertRaises(Crash, self.sink().commit, "5", [self.stage("5", 0, 21)])
        self.assertIn("batch 5", str(self.assertRaises(SinkError, self.sink().commit, "6", [])))

    def test_another_query_is_refused(self):
        self.sink().commit("0", [self.stage("0", 0, 2)])
        self.assertRaises(SinkError, self.sink("another").commit, "0", [self.stage("0", 0, 2)])
        self.expect(2)

    def test_second_writer_is_refused_and_told_the_holder(self):
        sinks = [self.sink(), self.sink()]
        errors = []

        def send(parcels):
            errors.append(self.assertRaises(SinkError, sinks[1].commit, "0", []))
            return Brokers.send(self.brokers, parcels)

        self.brokers.send = send
        sinks[0].commit("0", [self.stage("0", 0, 2)])
        self.assertIn(f"process {os.getpid()} on", str(errors[0]))
        self.expect(2)

    def test_abort_removes_staged_files(self):
        staged = [self.stage("0", 0, 2)]
        self.sink().abort("0", staged)
        self.assertEqual(self.arrow_files(), [])

    def test_row_for_unknown_queue_fails_before_any_send(self):
        sink = self.sink(queueSelector="column")
        bad = [self.stage("0", 0, 2, queue_id=0, broker="a"), self.stage("0", 2, 2, 1, queue_id=7)]
        self.assertRaises(RowError, sink.commit, "0", bad)
        self.assertEqual(self.brokers.bodies(), [[], []])
        sink.commit("0", [self.stage("0", 0, 2, queue_id=0, broker="a")])
        self.assertEqual(self.brokers.bodies(), [[b"0000", b"0001"], []])

    def test_missing_staged_file_raises(self):
        self.brokers.faults = {4: "after"}
        self.assertRaises(Crash, self.sink().commit, "0", [self.stage("0", 0, 21)])
        for folder, _, names in os.walk(self.staging.folder):
            for name in names:
                if name.endswith(".arrow"):
                    os.remove(os.path.join(folder, name))
        self.assertIn("cannot be read", str(self.assertRaises(SinkError, self.sink().commit, "0", [])))
