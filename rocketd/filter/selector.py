"""Compiled filters: parsed once, evaluated per message.

Counterpart: `SqlFilter` with its `FilterFactory`, and `MessageEvaluationContext` (Apache).
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from rocketd.filter.evaluate import compile_expression
from rocketd.filter.expressions import SelectorError, names_in

SQL92: Final = "SQL92"

_CACHED: Final = 1000
"""Number of compiled expressions kept, for all users."""


class Selector:
    """One filter. Immutable; any thread.

    ``end`` is the position in the text where parsing ended: its length unless more text follows a complete condition.
    """

    __slots__ = ("_evaluate", "_find", "end")

    def __init__(self, text: str) -> None:
        """Raises SelectorError if the text is not a filter."""
        # Imported with the first filter, because it takes a quarter of a second.
        from rocketd.filter.parser import parse

        expression, self.end = parse(text)
        self._evaluate = compile_expression(expression)
        names = "|".join(map(re.escape, sorted(names_in(expression))))
        self._find = re.compile(f"(?:\\A|\x02)({names})\x01([^\x02]+)").findall if names else None

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Return the filter's truth for properties. None is unknown. Raises ValueError if Java throws."""
        value: bool | None = self._evaluate(properties)
        return value

    def is_true(self, properties: Mapping[str, str]) -> bool:
        """Return whether the filter is true for properties. An error counts as false."""
        try:
            return self._evaluate(properties) is True
        except ValueError:
            return False

    def matches(self, properties: bytes) -> bool:
        """Return whether the filter is true for a property string in UTF-8."""
        # Only the filter's properties are parsed. The last of equal names counts.
        found = dict(self._find(properties.decode("utf-8", "replace"))) if self._find is not None else {}
        return self.is_true(found)


@lru_cache(_CACHED)
def compile_selector(kind: str, text: str) -> Selector:
    """Return the filter of an expression type and text, cached if it was used recently.

    Raises SelectorError.
    """
    if kind != SQL92:
        raise SelectorError(f"{kind} is not a known type of expression; known are TAG and {SQL92}")
    return Selector(text)
