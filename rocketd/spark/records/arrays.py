"""Arrow arrays made of pieces of a buffer.

Arrow copies the pieces once; numpy only computes their begins and ends. Positions are numpy arrays of int64.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

LONGEST = 2**31 - 1
"""The most bytes that an Arrow array of texts or bytes may have: its offsets have 32 bits."""

_evens = pa.array(np.arange(0, 2 * 16384, 2, dtype=np.int32))


def even_numbers(count: int) -> pa.Array:
    """Return the first even numbers, as indices for Arrow."""
    global _evens
    if count > len(_evens):
        _evens = pa.array(np.arange(0, 2 * max(count, 2 * len(_evens)), 2, dtype=np.int32))
    return _evens.slice(0, count)


def pieces(data: pa.Buffer, begins: Positions, ends: Positions, kind: pa.DataType = None) -> pa.Array:
    """Return an array of bytes, or of `kind`, made of the pieces of a buffer of at most `LONGEST` bytes.

    Pieces must be in ascending order without overlap. Arrow takes every second value of a source array, and that array
    has the offsets start, end, start, end …
    """
    count = len(begins)
    if not count:
        return pa.array([], kind or pa.binary())
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[:-1:2] = begins
    offsets[1::2] = ends
    # Arrow reserves space by the mean length of the source's values, which would include the gaps. The last offset, of a
    # value that is never taken, corrects the mean.
    offsets[-1] = min(int(begins[0]) + 2 * int((ends - begins).sum()) + 2 * count, data.size, LONGEST)
    buffers = [None, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(kind or pa.binary(), 2 * count, buffers).take(even_numbers(count))


def content(array: pa.Array) -> tuple[Positions, Bytes]:
    """Return the offsets (one more than values) and the bytes of a text or binary array that is not a slice."""
    _, offsets, data = array.buffers()
    count = len(array)
    where = np.frombuffer(offsets, np.int32, count + 1) if offsets is not None else np.zeros(1, np.int32)
    held = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return where.astype(np.int64), held


def of_parts(kind: pa.DataType, count: int, offsets: npt.NDArray[Any], data: object) -> pa.Array:
    """Build an array without nulls from offsets and bytes."""
    where = pa.py_buffer(np.ascontiguousarray(offsets, np.int32))
    return pa.Array.from_buffers(
        kind, count, [None, where, data if isinstance(data, pa.Buffer) else pa.py_buffer(data)]
    )


def with_nulls(array: pa.Array, present: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the same array of texts, with nulls where `present` is false."""
    if present.all():
        return array
    _, offsets, data = array.buffers()
    validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [validity, offsets, data])


def as_text(array: pa.Array) -> pa.Array:
    """Return the same bytes as text. Invalid UTF-8 becomes the replacement character."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [None if one is None else one.decode("utf-8", "replace") for one in array.to_pylist()], pa.string()
        )


def repeated(value: str, count: int) -> pa.Array:
    """Return an array that repeats the same text."""
    return pa.repeat(pa.scalar(value, pa.string()), count)


def same_or_taken(texts: list[str], codes: npt.NDArray[Any]) -> pa.Array:
    """Return the texts selected by the codes, which are positions in `texts`."""
    if len(texts) == 1:
        return repeated(texts[0], len(codes))
    return pa.array(texts, pa.string()).take(pa.array(codes))
