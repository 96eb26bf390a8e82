"""Hosts as text, and the message ids made from them.

The format is that of `rocketd.common.record_host`. Many records share few hosts, so each host is formatted once.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketd.common.record_host import host_text
from rocketd.spark.records.arrays import of_parts, repeated, same_or_taken
from rocketd.spark.records.frames import Frames

_OFFSET_SIZE = 8
_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)
"""The two hexadecimal digits of each byte value."""


def host_texts(frames: Frames, name: str) -> pa.Array:
    """Return ``address:port`` of the field `name` for all records."""
    texts: list[str] = []
    codes = np.zeros(frames.count, np.int32)
    for rows, heads in frames.groups:
        hosts = np.ascontiguousarray(heads[name])
        if _is_one(hosts):
            codes[rows] = len(texts)
            texts.append(host_text(hosts[0].tobytes()))
            continue
        values = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(hosts.shape[1]), len(hosts), [None, pa.py_buffer(hosts)]
        ).dictionary_encode()
        codes[rows] = values.indices.to_numpy() + len(texts)
        texts += [host_text(host) for host in values.dictionary.to_pylist()]
    return same_or_taken(texts, codes) if texts else repeated("", 0)


def message_ids(frames: Frames) -> pa.Array:
    """Return the offset message ids: store host and commit-log offset, in hexadecimal digits."""
    if len(frames.groups) == 1:
        digits = _digits(frames.groups[0][1])
        count, width = digits.shape
        return of_parts(pa.string(), count, np.arange(0, (count + 1) * width, width), digits)
    lengths = np.zeros(frames.count, np.int64)
    for rows, heads in frames.groups:
        lengths[rows] = 2 * (heads["store_host"].shape[1] + _OFFSET_SIZE)
    offsets = np.zeros(frames.count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    text = np.empty(int(offsets[-1]), np.uint8)
    for rows, heads in frames.groups:
        digits = _digits(heads)
        text[offsets[:-1][rows][:, None] + np.arange(digits.shape[1])] = digits
    return of_parts(pa.string(), frames.count, offsets, text)


def _is_one(hosts: npt.NDArray[np.uint8]) -> bool:
    """Tell whether all hosts are the same. Their sizes are multiples of four bytes."""
    words = np.ascontiguousarray(hosts).view(np.uint32)
    return bool((words == words[0]).all())


def _digits(heads: npt.NDArray[np.void]) -> npt.NDArray[np.uint8]:
    """Return the characters of the ids, one row for each record."""
    hosts = heads["store_host"]
    count, size = hosts.shape
    digits = np.empty((count, size + _OFFSET_SIZE), np.uint16)
    if _is_one(hosts):
        digits[:, :size] = _HEX[hosts[0]]
    else:
        digits[:, :size] = _HEX[hosts]
    offsets = np.ascontiguousarray(heads["commit_log_offset"]).view(np.uint8).reshape(count, _OFFSET_SIZE)
    digits[:, size:] = _HEX[offsets]
    return digits.view(np.uint8).reshape(count, 2 * (size + _OFFSET_SIZE))
