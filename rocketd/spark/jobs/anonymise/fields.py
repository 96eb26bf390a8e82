"""Anonymises fields of messages: values are replaced by keyed hashes, or dropped.

Pure functions over Arrow batches. The token of a value is HMAC-SHA-256 under the secret, as hexadecimal digits cut to
32. The same value and secret give the same token, in every field and every run, so that joins still work. Without the
secret, a guessed value cannot be tested against a token.
"""

import enum
import hmac
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from rocketd.spark.errors import OptionError, SparkError

TOKEN_DIGITS = 32
MIN_SECRET_BYTES = 16

_COLUMNS = ("keys", "tags", "uniq_key", "born_host", "body")
_PROPERTY_OF = {"keys": "KEYS", "tags": "TAGS", "uniq_key": "UNIQ_KEY"}
_FIELDS = f"{', '.join(_COLUMNS)}, properties.NAME, body.NAME or body.NAME.NAME (for bodies that are JSON)"


class Action(enum.Enum):
    """The treatment of a field."""

    HASH = "hash"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Rule:
    """One field and its treatment. `path` follows the column: a property's name, or the path in a JSON body."""

    column: str
    path: tuple[str, ...]
    action: Action

    @property
    def field(self) -> str:
        """The field as requested."""
        return ".".join((self.column, *self.path))


def rule(text: str, action: Action) -> Rule:
    """Return the rule for a field as written on the command line. Raises OptionError for an unknown field."""
    column, *path = text.split(".")
    if column == "properties" and path and all(path):
        return Rule(column, (".".join(path),), action)
    if column in _COLUMNS and all(path) and (not path or column == "body"):
        return Rule(column, tuple(path), action)
    raise OptionError(f"{text!r} is not a field that can be made unrecognisable; there are {_FIELDS}")


class Anonymiser:
    """Applies rules to batches, and counts the changed values of each field in `touched`.

    Raises OptionError if the secret is so short that values could be guessed. For one thread.
    """

    def __init__(self, rules: Sequence[Rule], secret: bytes) -> None:
        if len(secret) < MIN_SECRET_BYTES:
            raise OptionError(
                f"the secret has {len(secret)} bytes; {MIN_SECRET_BYTES} or more keep values from being guessed"
            )
        self._rules = tuple(rules)
        self._secret = secret
        self.touched: Counter[str] = Counter({one.field: 0 for one in rules})

    def token(self, value: bytes) -> str:
        """Return the token of a value."""
        return hmac.digest(self._secret, value, "sha256").hex()[:TOKEN_DIGITS]

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with all rules applied; columns and their types stay.

        Columns missing in the batch are ignored. A column and the property that repeats it change together. Raises
        SparkError if a rule has a path into a body that is not JSON.
        """
        columns = {name: batch.column(position) for position, name in enumerate(batch.schema.names)}
        for one in self._rules:
            if one.column == "properties":
                self._apply_to_property(columns, one)
            elif one.path:
                _change(columns, "body", partial(self._changed_json, one))
            else:
                self._apply_to_column(columns, one)
        return pa.RecordBatch.from_arrays([columns[name] for name in batch.schema.names], schema=batch.schema)

    def _apply_to_column(self, columns: dict[str, pa.Array], one: Rule) -> None:
        changed = _change(columns, one.column, partial(self._replaced, one.column, one.action))
        repeated = _PROPERTY_OF.get(one.column)
        if repeated is not None:
            in_properties = self._change_property(columns, repeated, one)
            changed = max(changed, in_properties)
        self.touched[one.field] += changed

    def _apply_to_property(self, columns: dict[str, pa.Array], one: Rule) -> None:
        name = one.path[0]
        for column, repeated in _PROPERTY_OF.items():
            if repeated == name:
                _change(columns, column, partial(self._replaced, column, one.action))
        self.touched[one.field] += self._change_property(columns, name, one)

    def _change_property(self, columns: dict[str, pa.Array], name: str, one: Rule) -> int:
        column = next((column for column, repeated in _PROPERTY_OF.items() if repeated == name), "")
        count = 0

        def changed(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
            nonlocal count
            kept = []
            for key, value in pairs:
                replaced: Any = value
                if key == name:
                    count += 1
                    replaced = self._replaced(column, one.action, value)
                if replaced is not None:
                    kept.append((key, replaced))
            return kept

        _change(columns, "properties", changed)
        return count

    def _replaced(self, column: str, action: Action, value: Any) -> Any:
        """Return the replacement of a column's value, of the same type, or None."""
        if column == "body":
            return b"" if action is Action.DROP else self.token(value).encode()
        if action is Action.DROP:
            return None
        if column == "keys":
            return " ".join(self.token(key.encode()) for key in value.split(" ") if key)
        if column == "born_host":
            address, _, port = value.rpartition(":")
            return f"{self.token(address.encode())}:{port}"
        return self.token(value.encode())

    def _changed_json(self, one: Rule, body: bytes) -> bytes:
        try:
            document = json.loads(body)
        except ValueError as error:
            raise SparkError(
                f"a body is not JSON, so it has no {one.field}: choose the messages, or hash the whole body"
            ) from error
        if not self._descend(document, one.path, one):
            return body
        # Half a surrogate pair, allowed in JSON but not in UTF-8, is escaped as in JSON.
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")

    def _descend(self, document: object, path: tuple[str, ...], one: Rule) -> bool:
        """Apply the rule below a value, also to each element of lists on the way. Return whether the path exists."""
        if isinstance(document, list):
            # Visit every element, whatever the result of the first.
            return sum(self._descend(element, path, one) for element in document) > 0
        if not isinstance(document, dict) or path[0] not in document:
            return False
        if len(path) > 1:
            return self._descend(document[path[0]], path[1:], one)
        value = document.pop(path[0]) if one.action is Action.DROP else document[path[0]]
        if one.action is Action.HASH:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
            document[path[0]] = self.token(text.encode(errors="backslashreplace"))
        self.touched[one.field] += 1
        return True


def _change(columns: dict[str, pa.Array], name: str, changed: Callable[[Any], Any]) -> int:
    """Replace each value of a column, if the column exists. Return how many values it had."""
    if name not in columns:
        return 0
    array = columns[name]
    columns[name] = pa.array([None if value is None else changed(value) for value in array.to_pylist()], array.type)
    return len(array) - int(array.null_count)
