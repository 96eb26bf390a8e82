"""Hashes of many keys at once, beside Java's of each."""

import random

import numpy as np
import pyarrow as pa
from twisted.trial.unittest import TestCase

from rocketd.common.java_hash import PrefixedHasher, java_string_hash_unsigned
from rocketd.spark.jobs.stopped_store.index_keys import KEYED, Texts, index_hashes, java_hashes, keyed, keys_of
from rocketd.store.format.message import DispatchRequest
from rocketd.store.format.properties import index_keys
from rocketd.store.index.entries import index_entries, index_key_hash

ALPHABETS = ("0123456789ABCDEF", "abc-_", "äöüß€", "𝄞x")


def texts(seed, count):
    rnd = random.Random(seed)
    return [
        "".join(rnd.choices(rnd.choice(ALPHABETS), k=rnd.choice((0, 1, 5, 32, 32, 70, 2000)))) for _ in range(count)
    ]


def of_rows(rows, some):
    return Texts(np.array(rows, np.int64), pa.array(some, pa.string()))


def filled(some):
    """Numbers of the texts that are there, and these."""
    return [at for at, text in enumerate(some) if text], [text for text in some if text]


class KeyTests(TestCase):
    def test_hashes_are_those_of_java(self) -> None:
        for seed in range(10):
            some = texts(seed, 60)
            hashes, lengths = java_hashes(pa.array(some, pa.string()))
            self.assertEqual(hashes.tolist(), [java_string_hash_unsigned(text) for text in some])
            self.assertEqual(lengths.tolist(), [len(text.encode("utf-16-le")) // 2 for text in some])

    def test_a_part_of_an_array(self) -> None:
        some = texts(3, 40)
        hashes, _ = java_hashes(pa.array(["odd ä", *some, "more"], pa.string()).slice(1, 40))
        self.assertEqual(hashes.tolist(), [java_string_hash_unsigned(text) for text in some])
        self.assertEqual(java_hashes(pa.array([], pa.string()))[0].tolist(), [])

    def test_index_hash_covers_topic_and_key(self) -> None:
        topic = pa.array(["orders", "Grüße", "orders"]).dictionary_encode()
        keys = pa.array(["a", "ö" * 40, "", "k", "polygenelubricants"])
        rows = np.array([0, 1, 1, 2, 2])
        wanted = [
            index_key_hash(java_string_hash_unsigned(f"{name}#{key}"))
            for name, key in zip(["orders", "Grüße", "Grüße", "orders", "orders"], keys.to_pylist(), strict=True)
        ]
        self.assertEqual(index_hashes(topic, rows, keys).tolist(), wanted)

    def test_keys_in_their_order(self) -> None:
        unique = of_rows([0, 3], ["U0", "U3"])
        keys = of_rows([0, 1, 4], ["a  b ", "c", " "])
        rows, found = keys_of(unique, keys)
        self.assertEqual(
            list(zip(rows.tolist(), found.to_pylist(), strict=True)),
            [(0, "U0"), (0, "a"), (0, "b"), (1, "c"), (3, "U3")],
        )
        rows, found = keys_of(of_rows([], []), of_rows([0], ["x y"]))
        self.assertEqual((rows.tolist(), found.to_pylist()), ([0, 0], ["x", "y"]))
        rows, found = keys_of(of_rows([0], ["U"]), of_rows([], []))
        self.assertEqual((rows.tolist(), found.to_pylist()), ([0], ["U"]))

    def test_keys_of_batched_messages_include_those_of_the_batch(self) -> None:
        unique = of_rows([0, 0, 0, 1, 1, 3], ["own0", "batch", "own0", "batch", "own1", "own3"])
        rows, found = keys_of(unique, of_rows([0, 0, 1], ["a b", "b", "c"]))
        self.assertEqual(rows.tolist(), [0, 0, 0, 0, 0, 1, 1, 1, 3])
        self.assertEqual(found.to_pylist(), ["own0", "batch", "a", "b", "b", "batch", "own1", "c", "own3"])

    def test_indexed_keys_equal_the_stores(self) -> None:
        rnd = random.Random(7)
        words = [text.replace(" ", "") for text in texts(11, 200)]
        rows = [
            (
                rnd.choice(["orders", "bills"]),
                rnd.choice(words) or None,
                " ".join(rnd.sample(words, 2)) or None,
                rnd.random() < 0.1,
            )
            for _ in range(300)
        ]
        requests = [
            DispatchRequest(topic, 0, at * 100, 100, 0, at, 0, index_keys(unique, keys), 12 if gone else 0, 0, b"")
            for at, (topic, unique, keys, gone) in enumerate(rows)
        ]
        wanted = index_entries(requests, 0, PrefixedHasher())
        numbers = np.arange(len(rows))
        found = keyed(
            pa.array([row[0] for row in rows]).dictionary_encode(),
            of_rows(*filled([row[1] for row in rows])),
            of_rows(*filled([row[2] for row in rows])),
            numbers * 100,
            numbers,
            np.array([row[3] for row in rows]),
        )
        self.assertEqual(found.tolist(), np.array(wanted, KEYED).tolist())
