"""The bloom filter of filter bitmaps."""

from twisted.trial.unittest import SynchronousTestCase

from rocketd.filter.bloom import BloomFilter, is_hit, mask_of
from rocketd.filter.murmur3 import murmur3_64


class BloomFilterTests(SynchronousTestCase):
    def test_the_usual_size(self):
        bloom = BloomFilter(20, 32)
        self.assertEqual((bloom.hashes, bloom.bits, bloom.size), (3, 112, 14))

    def test_positions_are_apaches(self):
        bloom = BloomFilter(20, 32)
        self.assertEqual(bloom.positions("G#T"), [24, 26, 83])
        # From a consumerFilter.json that Apache's broker wrote.
        self.assertEqual(bloom.positions("G-9890-8#Filtered-9890-5"), [97, 111, 96])

    def test_hashes(self):
        # Guava's Hashing.murmur3_128().hashString(..., UTF_8).asLong(), as numbers without sign.
        for text, value in (
            ("", 0),
            ("hello", 0xCBD8A7B341BD9B02),
            ("The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
        ):
            self.assertEqual(murmur3_64(text.encode()), value)

    def test_only_sizes_that_make_sense(self):
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
