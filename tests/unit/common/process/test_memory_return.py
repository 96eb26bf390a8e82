"""Memory goes back to the system after a burst, not oftener than once a minute."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.process.memory_return import MemoryReturn, heap_trimmer, own_memory_of_process

MB = 1 << 20


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class MemoryReturnTests(SynchronousTestCase):
    def setUp(self):
        self.trims = 0
        self.own = 0

    def trim(self):
        self.trims += 1

    def sample(self, memory, *samples):
        for now, held in samples:
            memory.sample(held, now)
        return self.trims

    def make(self, threshold=64 * MB):
        return MemoryReturn(threshold, lambda function: function(), self.trim, lambda: self.own)

    def test_released_burst_trims_once(self):
        self.assertEqual(self.sample(self.make(), (0, 0), (5, 100 * MB), (10, 50 * MB), (15, 0), (20, 0)), 1)

    def test_small_changes_never_trim(self):
        self.assertEqual(self.sample(self.make(), (0, 63 * MB), (5, 0), (10, 63 * MB), (15, 0)), 0)

    def test_second_burst_within_a_minute_waits(self):
        memory = self.make()
        self.assertEqual(self.sample(memory, (0, 70 * MB), (5, 0), (10, 70 * MB), (15, 0), (60, 0)), 1)
        self.assertEqual(self.sample(memory, (65, 0)), 2)

    def test_threshold_0_disables_trimming(self):
        self.assertEqual(self.sample(self.make(0), (0, 1 << 40), (5, 0)), 0)

    def test_uncounted_growth_is_trimmed(self):
        memory = self.make()
        self.own = 50 * MB
        self.assertEqual(self.sample(memory, (0, 0)), 0)
        self.own = 113 * MB
        self.assertEqual(self.sample(memory, (5, 0)), 0)
        self.own = 114 * MB
        self.assertEqual(self.sample(memory, (10, 0)), 1)

    def test_growth_in_use_is_trimmed_with_backoff(self):
        memory = self.make()
        self.sample(memory, (0, 0))
        self.own = 500 * MB
        trimmed = []
        for now in range(5, 4000, 5):
            before = self.trims
            if self.sample(memory, (now, 0)) > before:
                trimmed.append(now)
        self.assertEqual(trimmed, [5, 65, 185, 425, 905, 1865, 2825, 3785])
        self.own = 10 * MB
        self.sample(memory, (4000, 0))
        self.own = 500 * MB
        self.assertEqual(self.sample(memory, (4005, 0)), len(trimmed) + 1, "that was given back in between")

    def test_own_memory_excludes_mapped_files(self):
        before = own_memory_of_process()
        if not before:
            return  # another system
        block = b"x" * (64 * MB)
        self.assertGreater(own_memory_of_process(), before + 60 * MB)
        del block

    def test_freed_memory_goes_back_to_the_system(self):
        trim = heap_trimmer()
        if trim is None:
            return  # another C library
        pieces = [bytes(60_000) for _ in range(3_000)]
        last = bytearray(60_000)  # at the end of the heap: nothing before it goes back by itself
        full = resident()
        del pieces
        MemoryReturn(MB, lambda function: function()).sample(0, 0.0)
        memory = MemoryReturn(MB, lambda function: function())
        memory.sample(2 * MB, 0.0)
        memory.sample(0, 5.0)
        self.assertLess(resident(), full - 100 * MB)
        del last
