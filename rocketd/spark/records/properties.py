"""Property strings as columns: single values, and maps.

Answers to `rocketd.common.properties`: entries without a name or a value do not count, and of equal names the last wins.
All strings of a batch are copied into one run of bytes, in which numpy finds the two separators; a name is compared by its
first eight bytes as one number.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketd.common.java_hash import java_string_hash
from rocketd.common.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rocketd.spark.records.arrays import Positions, content, of_parts, pieces, with_nulls
from rocketd.spark.records.frames import Frames

_NAME_END = ord(NAME_VALUE_SEPARATOR)
_PAIR_END = ord(PROPERTY_SEPARATOR)
_WORD = 8
_MASKS = np.array([int.from_bytes(b"\xff" * size + bytes(_WORD - size), "little") for size in range(_WORD + 1)], "<u8")
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MOST_PASSES = 24


class Properties:
    """The property strings of a batch, taken apart once for all columns that need them."""

    def __init__(self, frames: Frames) -> None:
        begins, ends = frames.properties
        self.count = frames.count
        # With the byte before each string, which then becomes a separator: so every entry begins behind one.
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
        """Where names begin, where they end, where values end; and the number of entries before each string's, with that of
        all at the end.
        """
        text = self.text
        places = np.flatnonzero(text <= _PAIR_END)
        kinds = text[places]
        if len(kinds) % 2 == 0 and (kinds[::2] == _PAIR_END).all() and (kinds[1::2] == _NAME_END).all():
            before, marks = places[::2], places[1::2]
            begins, ends = before + 1, np.append(before[1:], len(text))
        else:
            # Entries without a separator or with several: the first one behind each beginning counts.
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
        """The number of the first entry of each string, by the separators before all entries; and that of entries."""
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
        """The first eight bytes of each name as a number, zeros behind a shorter one."""
        begins, marks, _, _ = self._entries
        names: npt.NDArray[np.uint64] = self._words(begins) & _MASKS[np.minimum(marks - begins, _WORD)]
        return names

    def _words(self, begins: Positions) -> npt.NDArray[np.uint64]:
        """Eight bytes from each of the ascending positions on, zeros behind the end."""
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
        """The string that each entry belongs to."""
        return np.repeat(np.arange(self.count), np.diff(self._entries[3]))

    def values(self, name: str) -> pa.Array:
        """The value of one name in each string, null where there is none. Names have at most eight characters."""
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
        # Of several for one row the last one counts, as numpy keeps the last.
        begins[rows] = marks[found] + 1
        stops[rows] = ends[found]
        present[rows] = True
        return with_nulls(pieces(pa.py_buffer(self.text), begins, stops, pa.string()), present)

    def every(self, name: str) -> tuple[npt.NDArray[np.int64], pa.Array]:
        """All values of one name: the number of each one's string, ascending, and the value. Names as for `values`."""
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
        """Java's hash of the tag, 0 without one."""
        coded = self.tags.dictionary_encode()
        hashes = np.array([java_string_hash(tag) for tag in coded.dictionary.to_pylist()] + [0], np.int64)
        codes = coded.indices.fill_null(len(hashes) - 1).to_numpy()
        return pa.array(hashes[codes])

    def maps(self) -> pa.Array:
        """All properties of each string."""
        text = pa.py_buffer(self.text)
        begins, marks, ends, firsts = self._entries
        if each := self._alike:
            # Of batches every string has a name twice (WAIT): what is dropped from one is dropped from all.
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
        """How many entries each string has, where all have the same names, of at most eight bytes; else 0."""
        begins, marks, _, firsts = self._entries
        each = len(begins) // max(1, self.count)
        if not each or len(begins) != each * self.count or (np.diff(firsts) != each).any():
            return 0
        lengths = (marks - begins).reshape(-1, each)
        names = self._names.reshape(-1, each)
        same = lengths.max() <= _WORD and (lengths == lengths[0]).all() and (names == names[0]).all()
        return each if same else 0

    def _last_of_names(self, each: int) -> list[int]:
        """Which of the entries, the same in all strings, have a name that does not come again behind them."""
        begins, marks, _, _ = self._entries
        names = list(zip(self._names[:each].tolist(), (marks - begins)[:each].tolist(), strict=True))
        return [at for at, name in enumerate(names) if name not in names[at + 1 :]]

    def _same_names(self, begins: Positions, marks: Positions) -> pa.Array:
        """The names of all strings, when they are those of the first, which are at these places."""
        lengths = marks - begins
        each = len(lengths)
        row = np.concatenate([self.text[a:b] for a, b in zip(begins, marks, strict=True)])
        offsets = np.arange(0, (self.count + 1) * len(row), len(row))[:, None] + (np.cumsum(lengths) - lengths)
        return of_parts(
            pa.string(), each * self.count, offsets.ravel()[: each * self.count + 1], np.tile(row, self.count)
        )

    def _repeated(self) -> list[int]:
        """Entries whose name comes again in the same string."""
        begins, marks, _, firsts = self._entries
        lengths = marks - begins
        most = int(np.diff(firsts).max()) if self.count else 0
        if most < 2:
            return []
        hashes = (self._names + lengths.astype(np.uint64)) * _MIX
        if lengths.max() > _WORD:
            hashes ^= np.where(lengths > _WORD, self._words(np.maximum(marks - _WORD, begins)), np.uint64(0))
        keys = hashes + self._rows.astype(np.uint64) * _MIX
        if most <= _MOST_PASSES:
            steps = range(1, min(most, len(keys)))
            found = [np.flatnonzero(keys[step:] == keys[:-step]) for step in steps]
            early = np.concatenate(found) if found else np.zeros(0, np.int64)
            late = early + np.repeat(np.array(steps, np.int64), [len(one) for one in found])
        else:
            order = np.argsort(keys, kind="stable")
            pairs = keys[order[1:]] == keys[order[:-1]]
            early, late = order[:-1][pairs], order[1:][pairs]
        # Short names are compared as the words that they are.
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
    """How many are good before each, and in all."""
    counts = np.zeros(len(good) + 1, np.int64)
    np.cumsum(good, out=counts[1:])
    return counts


def raw_properties(frames: Frames) -> pa.Array:
    """The property strings as they were stored."""
    return pieces(frames.buffer, *frames.properties)
