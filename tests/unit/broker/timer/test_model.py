"""Timed messages against plain lists: cancelled, rolled, restarted, tables lost, power cut."""

import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.send.message_check import Destination
from rocketd.common.message_properties import encode_properties
from rocketd.remoting.headers.client import SendMessageRequestHeader
from rocketd.store.format.message import PutStatus
from rocketd.store.format.record import decode_message
from tests.support.broker import BORN_HOST, SmallBroker
from tests.support.examples import examples

SETTINGS = settings(
    max_examples=examples(12),
    stateful_step_count=15,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
OPTIONS = {"fileReservedTime": "1"}
"""Messages that wait for half an hour are rolled."""
START = 1_795_000_000


class TimerMachine(RuleBasedStateMachine):
    """The model: `waiting` has the time of each message that waits, `delivered` those that came, in order. Times differ,
    as the order of equal ones changes when one is rolled. Time goes on in the rules alone."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.store = os.path.join(self.directory, "store")
        self.image = os.path.join(self.directory, "image")
        self.clock = Clock()
        self.clock.advance(START)
        self.count = 0
        self.waiting = {}
        self.delivered = []
        self.broker = None

    @initialize()
    def begin(self):
        self.open()

    def teardown(self):
        if self.broker is not None:
            self.close()
        shutil.rmtree(self.directory)

    def open(self):
        self.broker = SmallBroker(self.store, self.clock, **OPTIONS)
        self.broker.start()
        self.broker.timers.prepare()

    def close(self):
        self.broker.timers.stop()
        self.broker.stop()
        self.broker = None

    def put(self, key, **properties):
        text = encode_properties({"UNIQ_KEY": key, **properties})
        header = SendMessageRequestHeader("P", "T", "TBW102", 4, 0, 0, 17, 0, text)
        message = self.broker.message_builder.single(
            header, Destination("T", 0, 0), BORN_HOST, key.encode(), self.broker.now_ms()
        )
        (result,) = self.broker.store.put_messages([message])
        assert result.status is PutStatus.PUT_OK, result
        self.broker.settle()

    @rule(seconds=st.integers(0, 4_000))
    def send(self, seconds):
        """Send a message whose number is the milliseconds of its time, so that times differ."""
        self.count += 1
        due = int(self.clock.seconds() * 1000) // 1000 * 1000 + (seconds + 1) * 1000 + self.count
        self.put(f"m{self.count}", TIMER_DELIVER_MS=str(due))
        self.waiting[f"m{self.count}"] = due

    @rule(number=st.integers(1, 30))
    def cancel(self, number):
        self.put("c", TIMER_DEL_UNIQKEY=f"m{number}", TIMER_DELAY_SEC="1")
        self.waiting.pop(f"m{number}", None)

    @rule(seconds=st.integers(0, 2_000))
    def time_goes_on(self, seconds):
        self.clock.advance(seconds)

    @rule(roll=st.booleans())
    def run_timers(self, roll):
        timers = self.broker.timers
        if roll:
            timers._next_roll = None
        # Some rounds: to read, to deliver, to read the note, to roll, to read that.
        for _ in range(8):
            timers.run_once()
            self.broker.settle()
        now_ms = self.broker.now_ms()
        due = sorted((due, key) for key, due in self.waiting.items() if due <= now_ms)
        for _, key in due:
            del self.waiting[key]
            self.delivered.append(key)
        self.compare()
        assert timers.waiting.count == len(self.waiting)
        assert timers.waiting.next_due() == min(self.waiting.values(), default=None)
        assert timers.lost == 0

    def compare(self):
        store = self.broker.store
        found = []
        while entries := store.queue_entries("T", 0, len(found), 1_000):
            found += [decode_message(store.look_message(entry[0])).body.decode() for entry in entries]
        assert found == self.delivered

    @rule(table=st.sampled_from(["kept", "lost", "behind"]))
    def restart(self, table):
        self.close()
        path = os.path.join(self.store, "timer", "waiting.db")
        if table == "lost":
            shutil.rmtree(os.path.dirname(path), ignore_errors=True)
        elif table == "behind" and os.path.exists(path):
            # As after a crash of the system that lost the last writes of SQLite.
            shutil.copy(path, path + ".old")
            self.open()
            self.put("x", TIMER_DELAY_SEC="1", TIMER_DEL_UNIQKEY="nothing")
            self.run_timers(roll=False)
            self.close()
            shutil.move(path + ".old", path)
        self.open()

    @rule(delays=st.lists(st.integers(0, 3_000), max_size=3), cancels=st.integers(1, 30), seconds=st.integers(0, 3_000))
    def power_cut(self, delays, cancels, seconds):
        """The log loses its last records; the table, which is on the same disk, may keep them."""
        self.close()
        shutil.rmtree(self.image, ignore_errors=True)
        shutil.copytree(self.store, self.image, ignore=shutil.ignore_patterns("timer"))
        saved = dict(self.waiting), list(self.delivered)
        self.open()
        for delay in delays:
            self.send(delay)
        self.cancel(cancels)
        self.time_goes_on(seconds)
        self.run_timers(roll=True)
        self.close()
        table, kept = (os.path.join(directory, "timer") for directory in (self.store, self.directory))
        shutil.move(table, kept)
        shutil.rmtree(self.store)
        shutil.copytree(self.image, self.store)
        shutil.move(kept, table)
        self.waiting, self.delivered = saved
        self.open()
        self.compare()


class TimerModelTests(SynchronousTestCase):
    def test_timer_behaves_as_lists(self):
        run_state_machine_as_test(TimerMachine, settings=SETTINGS)
