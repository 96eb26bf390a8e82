"""The bloom filter of filter bitmaps."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.filter.bloom import BloomFilter, is_hit, mask_of


class BloomFilterTests(SynchronousTestCase):
    def test_filter_of_20_percent_and_32_members_has_112_bits(self):
        bloom = BloomFilter(20, 32)
        self.assertEqual((bloom.hashes, bloom.bits, bloom.size), (3, 112, 14))

    def test_positions_equal_apaches(self):
        bloom = BloomFilter(20, 32)
        self.assertEqual(bloom.positions("G#T"), [24, 26, 83])
        # From a consumerFilter.json that Apache's broker wrote.
        self.assertEqual(bloom.positions("G-9890-8#Filtered-9890-5"), [97, 111, 96])

    def test_senseless_sizes_are_refused(self):
        for error_rate, expected in ((0, 32), (100, 32), (20, 0)):
            self.assertRaises(ValueError, BloomFilter, error_rate, expected)

    def test_bits_in_bytes(self):
        bloom = BloomFilter(20, 32)
        mask = mask_of([0, 9, 111, 9])
        bitmap = bloom.bitmap(mask)
        self.assertEqual(bitmap, b"\x01\x02" + bytes(11) + b"\x80")
        self.assertTrue(is_hit(bitmap, mask))
        self.assertTrue(is_hit(bitmap, mask_of([9])))
        self.assertFalse(is_hit(bitmap, mask_of([9, 10])))

    def test_stored_positions(self):
        bloom = BloomFilter(20, 32)
        self.assertTrue(bloom.is_valid([1, 2, 111], 112))
        for positions, bits in (([1, 2, 3], 104), ([1, 2], 112), ([1, 2, 112], 112), ([-1, 2, 3], 112)):
            self.assertFalse(bloom.is_valid(positions, bits))
