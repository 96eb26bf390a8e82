"""The core of a daemon's threads: the choice of a core, the binding, and the setting."""

import os
import threading
from itertools import pairwise
from random import Random
from time import process_time
from unittest import skipIf

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.process import cpu_affinity
from rocketd.common.process.cpu_affinity import (
    INTERVAL_SECONDS,
    CoreChoice,
    CpuAffinity,
    UnboundThread,
    busy_seconds,
    cores_of_process,
    current_core,
)
from rocketd.common.settings.declaration import ConfigError

WAIT_SECONDS = 60.0
LONGEST = INTERVAL_SECONDS[1]
CORES = cores_of_process()
NEEDS_TWO_CORES = skipIf(len(CORES) < 2, "needs two cores")


class CoreChoiceTests(SynchronousTestCase):
    def setUp(self):
        self.busy = {0: 100.0, 1: 200.0, 2: 300.0}
        self.own = self.now = 0.0
        self.choice = CoreChoice(1, dict(self.busy), self.own, self.now)

    def pass_second(self, own=0.0, **others):
        """Let a second pass in which this process and others use cores; return the chosen core."""
        self.now += 1
        self.own += own
        self.busy[self.choice.core] += own
        for core, share in others.items():
            self.busy[int(core.removeprefix("core"))] += share
        return self.choice.measure(dict(self.busy), self.own, self.now)

    def test_core_that_others_leave_alone_is_kept(self):
        for _ in range(5):
            self.assertEqual(self.pass_second(own=1.0), 1)

    def test_core_that_others_need_is_left_for_the_freest(self):
        self.assertEqual(self.pass_second(own=0.4, core0=0.3, core1=0.6), 1)
        self.assertEqual(self.pass_second(own=0.4, core0=0.3, core1=0.6), 2)
        self.assertEqual(self.pass_second(own=1.0, core0=0.3, core1=0.6), 2)

    def test_core_that_others_need_once_is_kept(self):
        for _ in range(3):
            self.assertEqual(self.pass_second(own=0.4, core1=0.6), 1)
            self.assertEqual(self.pass_second(own=1.0), 1)

    def test_core_is_kept_if_no_other_is_much_freer(self):
        for _ in range(5):
            self.assertEqual(self.pass_second(own=0.4, core0=0.5, core1=0.6, core2=0.5), 1)

    def test_core_without_figures_is_left(self):
        del self.busy[1]
        self.choice.measure(dict(self.busy), 0.9, 1.0)
        self.assertEqual(self.choice.measure(dict(self.busy), 1.8, 2.0), 0)

    def test_two_busy_processes_part(self):
        """Both start on core 0 of two. Their measurements are at random times, as in the service."""
        for seed in range(20):
            random = Random(seed)
            busy, own, now = {0: 0.0, 1: 0.0}, [0.0, 0.0], 0.0
            choices = [CoreChoice(0, dict(busy), 0.0, 0.0) for _ in own]
            due = [random.uniform(*INTERVAL_SECONDS) for _ in own]
            while now < 60:
                now += 0.1
                together = choices[0].core == choices[1].core
                for number, choice in enumerate(choices):
                    share = 0.05 if together else 0.1
                    own[number] += share
                    busy[choice.core] += share
                for number, choice in enumerate(choices):
                    if now >= due[number]:
                        choice.measure(dict(busy), own[number], now)
                        due[number] = now + random.uniform(*INTERVAL_SECONDS)
            self.assertNotEqual(choices[0].core, choices[1].core, f"seed {seed}")


class CpuAffinityTests(SynchronousTestCase):
    def setUp(self):
        self.clock = Clock()
        self.busy = dict.fromkeys(CORES, 0.0)
        self.threads = []
        self.end = threading.Event()
        self.addCleanup(self.end_threads)

    def end_threads(self):
        self.end.set()
        for thread in self.threads:
            thread.join()

    def start_thread(self, thread_type=threading.Thread):
        """Start a thread that waits. Return it when it has chosen its cores."""
        started = threading.Event()

        def run():
            started.set()
            self.end.wait(WAIT_SECONDS)

        thread = thread_type(target=run)
        self.threads.append(thread)
        thread.start()
        self.assertTrue(started.wait(WAIT_SECONDS))
        return thread

    def cores(self, thread=None):
        return os.sched_getaffinity(threading.get_native_id() if thread is None else thread.native_id)

    def start(self, mode):
        affinity = CpuAffinity(mode, self.clock, lambda cores: dict(self.busy), lambda: 0.0, Random(1))
        affinity.startService()
        self.addCleanup(lambda: affinity.running and affinity.stopService())
        return affinity

    @NEEDS_TWO_CORES
    def test_auto_binds_threads_to_one_core(self):
        before = self.start_thread()
        self.start("auto")
        core = self.cores()
        self.assertEqual(len(core), 1)
        self.assertEqual([self.cores(thread) for thread in (before, self.start_thread())], [core, core])

    @NEEDS_TWO_CORES
    def test_unbound_threads_use_all_cores(self):
        before = self.start_thread(UnboundThread)
        self.start("auto")
        for thread in (before, self.start_thread(UnboundThread)):
            self.assertEqual(self.cores(thread), CORES)

    @NEEDS_TWO_CORES
    def test_number_binds_threads_to_this_core_for_good(self):
        core = max(CORES)
        self.start(str(core))
        for _ in range(3):
            self.assertEqual(self.cores(), {core})
            self.busy[core] += LONGEST
            self.clock.advance(LONGEST)

    def test_off_binds_nothing(self):
        self.start("off")
        self.assertEqual(self.cores(), CORES)

    @NEEDS_TWO_CORES
    def test_auto_moves_threads_if_others_need_the_core(self):
        self.start("auto")
        (core,) = self.cores()
        for _ in range(2):
            self.assertEqual(self.cores(), {core})
            self.busy[core] += LONGEST
            self.clock.advance(LONGEST)
        self.assertNotIn(core, self.cores())
        self.assertEqual(len(self.cores()), 1)

    @NEEDS_TWO_CORES
    def test_stop_gives_all_cores_back(self):
        affinity = self.start("auto")
        thread = self.start_thread()
        affinity.stopService()
        self.assertEqual([self.cores(), self.cores(thread)], [CORES, CORES])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    @NEEDS_TWO_CORES
    def test_measurements_are_at_random_intervals(self):
        self.start("auto")
        times = [0.0]
        for _ in range(5):
            (call,) = self.clock.getDelayedCalls()
            times.append(call.getTime())
            self.clock.advance(call.getTime() - self.clock.seconds())
        intervals = [later - earlier for earlier, later in pairwise(times)]
        self.assertEqual(len(set(intervals)), 5)

    @NEEDS_TWO_CORES
    def test_thread_started_during_a_move_is_bound_later(self):
        self.start("auto")
        thread = self.start_thread()
        os.sched_setaffinity(thread.native_id, CORES)
        self.clock.advance(LONGEST)
        self.assertEqual(self.cores(thread), self.cores())

    @NEEDS_TWO_CORES
    def test_cores_changed_by_another_program_stay(self):
        self.start("auto")
        os.sched_setaffinity(0, CORES)
        self.clock.advance(LONGEST)
        self.assertEqual((self.cores(), self.cores(self.start_thread(UnboundThread))), (CORES, CORES))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    @NEEDS_TWO_CORES
    def test_refused_binding_leaves_threads_running(self):
        def refuse(*_):
            raise PermissionError(1, "Operation not permitted")

        self.patch(os, "sched_setaffinity", refuse)
        self.start("auto")
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.patch(cpu_affinity, "_all_cores", CORES)
        self.start_thread(UnboundThread)

    @NEEDS_TWO_CORES
    def test_unreadable_figures_leave_the_core_as_it_is(self):
        def fail(_):
            raise OSError(24, "Too many open files")

        affinity = self.start("auto")
        core = self.cores()
        self.patch(affinity, "_read_busy", fail)
        for _ in range(3):
            self.clock.advance(LONGEST)
        self.assertEqual(self.cores(), core)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)

    @NEEDS_TWO_CORES
    def test_start_without_figures_binds_nothing(self):
        def fail(_):
            raise FileNotFoundError(2, "No such file or directory")

        affinity = CpuAffinity("auto", self.clock, fail)
        affinity.startService()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        affinity.stopService()
        self.assertIsNone(cpu_affinity._all_cores)

    def test_core_that_the_process_does_not_have_is_refused(self):
        for mode in ("9999", "on", "-1", ""):
            error = self.assertRaises(ConfigError, CpuAffinity, mode, self.clock)
            self.assertIn(f"cpuAffinity = {mode}: accepted are auto, off, and the cores ", str(error))

    def test_ranges_are_those_of_taskset(self):
        self.assertEqual(cpu_affinity._ranges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8")
        self.assertEqual(cpu_affinity._ranges({3}), "3")


class SystemTests(SynchronousTestCase):
    def test_busy_seconds_grow_with_work(self):
        before = sum(busy_seconds(CORES).values())
        end = process_time() + 0.2
        while process_time() < end:
            pass
        self.assertGreater(sum(busy_seconds(CORES).values()), before)
        self.assertEqual(set(busy_seconds(CORES)), CORES)

    def test_current_core_is_one_of_the_process(self):
        self.assertIn(current_core(), CORES)
