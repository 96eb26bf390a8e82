"""Memory goes back to the system after a burst, not oftener than once a minute."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.common.memory_return import MemoryReturn, heap_trimmer

MB = 1 << 20


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class MemoryReturnTests(SynchronousTestCase):
    def setUp(self):
        self.trims = 0

    def trim(self):
        self.trims += 1

    def sample(self, memory, *samples):
        for now, held in samples:
            memory.sample(held, now)
        return self.trims

    def make(self, threshold=64 * MB):
        return MemoryReturn(threshold, lambda function: function(), self.trim)

    def test_a_released_burst_trims_once(self):
        self.assertEqual(self.sample(self.make(), (0, 0), (5, 100 * MB), (10, 50 * MB), (15, 0), (20, 0)), 1)

    def test_small_changes_never_trim(self):
        self.assertEqual(self.sample(self.make(), (0, 63 * MB), (5, 0), (10, 63 * MB), (15, 0)), 0)

    def test_a_second_burst_within_a_minute_waits(self):
        memory = self.make()
        self.assertEqual(self.sample(memory, (0, 70 * MB), (5, 0), (10, 70 * MB), (15, 0), (60, 0)), 1)
        self.assertEqual(self.sample(memory, (65, 0)), 2)

    def test_0_switches_it_off(self):
        self.assertEqual(self.sample(self.make(0), (0, 1 << 40), (5, 0)), 0)

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
