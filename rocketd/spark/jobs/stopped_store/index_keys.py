"""Entries of the message index for many records at once: key hashes, from Arrow columns of texts.

The results and their order are those of `rocketd.store.index.entries` and
`rocketd.store.format.properties.dispatch_properties`. Pure functions over arrays; imports neither PySpark nor Twisted.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketd.common.java_hash import java_string_hash_unsigned
from rocketd.spark.jobs.stopped_store.log_scan import Longs
from rocketd.store.index.entries import KEY_SEPARATOR

INDEX_ENTRY = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
"""An entry of an index file: key hash, log offset, seconds since the file's first entry, previous entry of the slot."""

KEYED = np.dtype([("hash", "<i4"), ("offset", "<i8"), ("time", "<i8")])
"""A key to index: its hash, the log offset in bytes, and the store time in ms."""

Keyed = npt.NDArray[Any]
_Units = npt.NDArray[np.uint32]
_MAX_INT = np.uint32(0x7FFFFFFF)
_LONG_KEY = 1024


def java_hashes(texts: pa.StringArray) -> tuple[_Units, Longs]:
    """Return the unsigned Java hash of each text, and its length in UTF-16 units. No text may be null."""
    count = len(texts)
    if not count:
        return np.zeros(0, np.uint32), np.zeros(0, np.int64)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + count + 1].astype(np.int64)
    data = texts.buffers()[2]
    units = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    lengths = np.diff(offsets)
    hashes = np.zeros(count, np.uint32)
    odd = np.zeros(count, np.bool_)
    used = units[offsets[0] : offsets[-1]]
    if used.size and used.max() > 127:
        ends = np.concatenate(([0], np.cumsum(used > 127)))
        odd = ends[offsets[1:] - offsets[0]] != ends[offsets[:-1] - offsets[0]]
    odd |= lengths > _LONG_KEY
    for length in np.unique(lengths[~odd]):
        if not length:
            continue
        rows = np.flatnonzero((lengths == length) & ~odd)
        powers = _powers(int(length))
        matrix = units[offsets[rows][:, None] + np.arange(length)]
        hashes[rows] = (matrix * powers).sum(axis=1, dtype=np.uint32)
    for row in np.flatnonzero(odd).tolist():
        text = texts[row].as_py()
        hashes[row] = java_string_hash_unsigned(text)
        lengths[row] = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return hashes, lengths


def _powers(count: int) -> _Units:
    """Return 31 to the powers count - 1 down to 0, modulo 2^32."""
    powers = np.full(count, 31, np.uint32)
    powers[0] = 1
    result: _Units = np.cumprod(powers, dtype=np.uint32)[::-1]
    return result


def index_hashes(topic: pa.DictionaryArray, rows: Longs, keys: pa.StringArray) -> npt.NDArray[np.int32]:
    """Return the index hash of each key, given the row of its record."""
    prefixes = [f"{name}{KEY_SEPARATOR}" for name in topic.dictionary.to_pylist()]
    heads = np.array([java_string_hash_unsigned(prefix) for prefix in prefixes], np.uint32)
    hashes, lengths = java_hashes(keys)
    longest = int(lengths.max(initial=0))
    shifts = _powers(longest + 1)[::-1]
    codes = np.asarray(topic.indices)[rows]
    whole = heads[codes] * shifts[lengths] + hashes
    # The absolute value of the signed number, or 0 if it has none.
    result: npt.NDArray[np.int32] = np.where(whole > _MAX_INT, (~whole + np.uint32(1)) & _MAX_INT, whole).astype(
        np.int32
    )
    return result


class Texts(NamedTuple):
    """Non-empty texts of records: the index of each text's record, ascending, and the text."""

    rows: Longs
    texts: pa.StringArray


def keys_of(unique: Texts, keys: Texts) -> Texts:
    """Return the keys of each record: its unique keys first, and then each word of its keys."""
    unique = _distinct(unique)
    if not len(keys.rows):
        return unique
    words = pc.split_pattern(keys.texts, " ")
    rows = keys.rows[np.asarray(pc.list_parent_indices(words))]
    texts = pc.list_flatten(words)
    filled = np.asarray(pc.greater(pc.binary_length(texts), 0))
    if not filled.all():
        rows = rows[filled]
        texts = texts.filter(pa.array(filled))
    if not len(unique.rows):
        return Texts(rows, texts)
    all_rows = np.concatenate((unique.rows, rows))
    order = np.argsort(all_rows, kind="stable")
    both = pa.concat_arrays([unique.texts, texts])
    return Texts(all_rows[order], pc.take(both, pa.array(order)))


def _distinct(given: Texts) -> Texts:
    """Drop repeated texts of a record; a record of a batch has some."""
    if not (np.diff(given.rows) == 0).any():
        return given
    coded = given.texts.dictionary_encode()
    pairs = given.rows * len(coded.dictionary) + np.asarray(coded.indices)
    _, firsts = np.unique(pairs, return_index=True)
    if len(firsts) == len(pairs):
        return given
    firsts.sort()
    return Texts(given.rows[firsts], pc.take(given.texts, pa.array(firsts)))


def keyed(
    topic: pa.DictionaryArray,
    unique: Texts,
    keys: Texts,
    offsets: Longs,
    times: Longs,
    left_out: npt.NDArray[np.bool_],
) -> Keyed:
    """Return the keys to index in the order of the log, without the records left out: a KEYED array."""
    rows, texts = keys_of(unique, keys)
    if left_out.any():
        kept = ~left_out[rows]
        rows = rows[kept]
        texts = texts.filter(pa.array(kept))
    result = np.empty(len(rows), KEYED)
    result["hash"] = index_hashes(topic, rows, texts)
    result["offset"] = offsets[rows]
    result["time"] = times[rows]
    return result
