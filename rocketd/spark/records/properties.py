"""Property strings as columns: single values, and maps.

The rules are those of `rocketd.common.message_properties`: entries without a name or a value are ignored, and the last of
several equal names wins. All strings of a batch are copied into one run of bytes, and numpy finds the two separators in
it. A name is compared by its first eight bytes, read as one number.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketd.common.java_hash import java_string_hash
from rocketd.common.message_properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rocketd.spark.records.arrays import Positions, content, of_parts, pieces, with_nulls
from rocketd.spark.records.frames import Frames

_NAME_END = ord(NAME_VALUE_SEPARATOR)
_PAIR_END = ord(PROPERTY_SEPARATOR)
_WORD = 8
_MASKS = np.array([int.from_bytes(b"\xff" * size + bytes(_WORD - size), "little") for size in range(_WORD + 1)], "<u8")
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MAX_PASSES = 24


class Properties:
    """The property strings of a batch, parsed once for all columns that need them."""

    def __init__(self, frames: Frames) -> None:
        begins, ends = frames.properties
        self.count = frames.count
        # Include the byte before each string and turn it into a separator: then a separator precedes every entry.
        self._set(pieces(frames.buffer, begins - 1, ends))
        if self.text.size and self.text.max() > 0x7F:
            strings = self._strings
            try:
                strings.cast(pa.string())
            except pa.ArrowInvalid:
                valid = [string.decode("utf-8", "replace").encode() for string in strings.to_pylist()]
                self._set(pa.array(valid, pa.binary()))

    def _set(self, strings: pa.Array) -> None:
        self._strings = strings
        self._offsets, self.text = content(strings)
        self.text[self._offsets[:-1]] = _PAIR_END

    @cached_property
    def _entries(self) -> tuple[Positions, Positions, Positions, npt.NDArray[np.int64]]:
        """Return name begins, name ends and value ends, and the entry count before each string, followed by the total."""
        text = self.text
        places = np.flatnonzero(text <= _PAIR_END)
        kinds = text[places]
        if len(kinds) % 2 == 0 and (kinds[::2] == _PAIR_END).all() and (kinds[1::2] == _NAME_END).all():
            before, marks = places[::2], places[1::2]
            begins, ends = before + 1, np.append(before[1:], len(text))
        else:
            # Entries without a name separator, or with several: the first separator after each beginning counts.
            before, marks = places[kinds == _PAIR_END], places[kinds == _NAME_END]
            begins, ends = before + 1, np.append(before[1:], len(text))
            marks = np.minimum(np.append(marks, len(text))[np.searchsorted(marks, begins)], ends)
        firsts = self._firsts(before)
        good = (marks > begins) & (marks + 1 < ends)
        if not good.all():
            kept = _counted(good)
            begins, marks, ends, firsts = begins[good], marks[good], ends[good], kept[firsts]
        return begins, marks, ends, firsts

    def _firsts(self, before: Positions) -> npt.NDArray[np.int64]:
        """Return the index of each string's first entry, then the total; `before` has the separator before each entry."""
        begins = self._offsets[:-1]
        if self.count:
            each = len(before) // self.count
            if len(before) == each * self.count and (before[::each] == begins).all():
                return np.arange(0, len(before) + 1, each)
        is_first = np.zeros(len(self.text), np.bool_)
        is_first[begins] = True
        return np.append(np.flatnonzero(is_first[before]), len(before))

    @cached_property
    def _names(self) -> npt.NDArray[np.uint64]:
        """The first eight bytes of each name as a number; shorter names are padded with zeros."""
        begins, marks, _, _ = self._entries
        names: npt.NDArray[np.uint64] = self._words(begins) & _MASKS[np.minimum(marks - begins, _WORD)]
        return names

    def _words(self, begins: Positions) -> npt.NDArray[np.uint64]:
        """Return eight bytes from each of the ascending positions on, padded with zeros beyond the end."""
        text = self.text
        if len(text) < _WORD:
            text = np.append(text, np.zeros(_WORD - len(text), np.uint8))
        last = len(text) - _WORD
        words = np.ndarray((last + 1,), f"V{_WORD}", text, strides=(1,))
        found: npt.NDArray[np.uint64] = words[np.minimum(begins, last)].view("<u8")
        for entry in range(int(np.searchsorted(begins, last + 1)), len(begins)):
            found[entry] = int.from_bytes(text[begins[entry] :].tobytes(), "little")
        return found

    @cached_property
    def _rows(self) -> npt.NDArray[np.int64]:
        """The string index of each entry."""
        return np.repeat(np.arange(self.count), np.diff(self._entries[3]))

    def values(self, name: str) -> pa.Array:
        """Return the value of one name in each string, null if it is absent. The name has at most eight characters."""
        names, marks, ends, _ = self._entries
        encoded = name.encode()
        wanted = int.from_bytes(encoded.ljust(_WORD, b"\0"), "little")
        each = self._alike
        found = np.flatnonzero(self._names[: each or None] == wanted)
        found = found[marks[found] - names[found] == len(encoded)]
        if each:
            if not len(found):
                return pa.nulls(self.count, pa.string())
            last = int(found[-1])
            return pieces(pa.py_buffer(self.text), marks[last::each] + 1, ends[last::each], pa.string())
        rows = self._rows[found]
        begins = self._offsets[:-1].copy()
        stops = begins.copy()
        present = np.zeros(self.count, np.bool_)
        # If a row has several, the last one counts, because numpy keeps the last assignment.
        begins[rows] = marks[found] + 1
        stops[rows] = ends[found]
        present[rows] = True
        return with_nulls(pieces(pa.py_buffer(self.text), begins, stops, pa.string()), present)

    def every(self, name: str) -> tuple[npt.NDArray[np.int64], pa.Array]:
        """Return all values of one name, and the string index of each in ascending order. Names as for `values`."""
        names, marks, ends, _ = self._entries
        encoded = name.encode()
        found = np.flatnonzero(self._names == int.from_bytes(encoded.ljust(_WORD, b"\0"), "little"))
        found = found[marks[found] - names[found] == len(encoded)]
        return self._rows[found], pieces(pa.py_buffer(self.text), marks[found] + 1, ends[found], pa.string())

    @cached_property
    def tags(self) -> pa.Array:
        """The tags."""
        return self.values("TAGS")

    def tag_hashes(self) -> pa.Array:
        """Return Java's hash of each tag, 0 without a tag."""
        coded = self.tags.dictionary_encode()
        hashes = np.array([java_string_hash(tag) for tag in coded.dictionary.to_pylist()] + [0], np.int64)
        codes = coded.indices.fill_null(len(hashes) - 1).to_numpy()
        return pa.array(hashes[codes])

    def maps(self) -> pa.Array:
        """Return all properties of each string as a map."""
        text = pa.py_buffer(self.text)
        begins, marks, ends, firsts = self._entries
        if each := self._alike:
            # Messages of a batch have one name twice (WAIT) in every string: dropping it from one drops it from all.
            kept = self._last_of_names(each)
            begins, marks, ends = (places.reshape(-1, each)[:, kept].ravel() for places in (begins, marks, ends))
            firsts = np.arange(0, len(begins) + 1, len(kept))
            names = self._same_names(begins[: len(kept)], marks[: len(kept)])
        else:
            dropped = self._repeated()
            if len(dropped):
                good = np.ones(len(begins), np.bool_)
                good[dropped] = False
                begins, marks, ends, firsts = begins[good], marks[good], ends[good], _counted(good)[firsts]
            names = pieces(text, begins, marks, pa.string())
        values = pieces(text, marks + 1, ends, pa.string())
        return pa.MapArray.from_arrays(pa.array(firsts.astype(np.int32)), names, values)

    @cached_property
    def _alike(self) -> int:
        """The number of entries of each string if all strings have the same names of at most eight bytes; else 0."""
        begins, marks, _, firsts = self._entries
        each = len(begins) // max(1, self.count)
        if not each or len(begins) != each * self.count or (np.diff(firsts) != each).any():
            return 0
        lengths = (marks - begins).reshape(-1, each)
        names = self._names.reshape(-1, each)
        same = lengths.max() <= _WORD and (lengths == lengths[0]).all() and (names == names[0]).all()
        return each if same else 0

    def _last_of_names(self, each: int) -> list[int]:
        """Return the entries whose name is not repeated later, if all strings have the same names."""
        begins, marks, _, _ = self._entries
        names = list(zip(self._names[:each].tolist(), (marks - begins)[:each].tolist(), strict=True))
        return [at for at, name in enumerate(names) if name not in names[at + 1 :]]

    def _same_names(self, begins: Positions, marks: Positions) -> pa.Array:
        """Return the names of all strings, which equal the names of the first string at these positions."""
        lengths = marks - begins
        each = len(lengths)
        row = np.concatenate([self.text[a:b] for a, b in zip(begins, marks, strict=True)])
        offsets = np.arange(0, (self.count + 1) * len(row), len(row))[:, None] + (np.cumsum(lengths) - lengths)
        return of_parts(
            pa.string(), each * self.count, offsets.ravel()[: each * self.count + 1], np.tile(row, self.count)
        )

    def _repeated(self) -> list[int]:
        """Return the entries whose name is repeated later in the same string."""
        begins, marks, _, firsts = self._entries
        lengths = marks - begins
        limit = int(np.diff(firsts).max()) if self.count else 0
        if limit < 2:
            return []
        hashes = (self._names + lengths.astype(np.uint64)) * _MIX
        if lengths.max() > _WORD:
            hashes ^= np.where(lengths > _WORD, self._words(np.maximum(marks - _WORD, begins)), np.uint64(0))
        keys = hashes + self._rows.astype(np.uint64) * _MIX
        if limit <= _MAX_PASSES:
            steps = range(1, min(limit, len(keys)))
            found = [np.flatnonzero(keys[step:] == keys[:-step]) for step in steps]
            early = np.concatenate(found) if found else np.zeros(0, np.int64)
            late = early + np.repeat(np.array(steps, np.int64), [len(one) for one in found])
        else:
            order = np.argsort(keys, kind="stable")
            pairs = keys[order[1:]] == keys[order[:-1]]
            early, late = order[:-1][pairs], order[1:][pairs]
        # Short names are compared as the numbers that they are stored as.
        sure = (
            (self._rows[early] == self._rows[late])
            & (lengths[early] == lengths[late])
            & (lengths[early] <= _WORD)
            & (self._names[early] == self._names[late])
        )
        dropped = set(early[sure].tolist())
        for row in np.unique(self._rows[early[~sure]]).tolist():
            last: dict[bytes, int] = {}
            for entry in range(int(firsts[row]), int(firsts[row + 1])):
                name = bytes(self.text[begins[entry] : marks[entry]])
                if name in last:
                    dropped.add(last[name])
                last[name] = entry
        return sorted(dropped)


def _counted(good: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Count the true values before each position, followed by the total."""
    counts = np.zeros(len(good) + 1, np.int64)
    np.cumsum(good, out=counts[1:])
    return counts


def raw_properties(frames: Frames) -> pa.Array:
    """Return the property strings as stored."""
    return pieces(frames.buffer, *frames.properties)
