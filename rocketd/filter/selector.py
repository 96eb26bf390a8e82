"""Filters ready for use: parsed once, asked per message.

Answers to Apache's SqlFilter with its FilterFactory, and to MessageEvaluationContext.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from rocketd.filter.evaluate import compile_expression
from rocketd.filter.expressions import SelectorError, names_in

SQL92: Final = "SQL92"

_CACHED: Final = 1000
"""Expressions kept compiled, whoever uses them."""


class Selector:
    """One filter. Immutable; any thread.

    ``end`` is where in the text reading ended: its length unless something follows a whole condition.
    """

    __slots__ = ("_evaluate", "_find", "end")

    def __init__(self, text: str) -> None:
        """Raises SelectorError where the text is no filter."""
        # Imported with the first filter, as it takes a quarter of a second.
        from rocketd.filter.parser import parse

        expression, self.end = parse(text)
        self._evaluate = compile_expression(expression)
        names = "|".join(map(re.escape, sorted(names_in(expression))))
        self._find = re.compile(f"(?:\\A|\x02)({names})\x01([^\x02]+)").findall if names else None

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Give the filter's truth for properties: None is unknown. Raises ValueError where Java throws."""
        value: bool | None = self._evaluate(properties)
        return value

    def is_true(self, properties: Mapping[str, str]) -> bool:
        """Whether the filter is true for properties; it is not where there is no truth."""
        try:
            return self._evaluate(properties) is True
        except ValueError:
            return False

    def matches(self, properties: bytes) -> bool:
        """Whether the filter is true for a property string in UTF-8."""
        # Only what the filter asks for is read; of equal names the last counts.
        found = dict(self._find(properties.decode("utf-8", "replace"))) if self._find is not None else {}
        return self.is_true(found)


@lru_cache(_CACHED)
def compile_selector(kind: str, text: str) -> Selector:
    """Make the filter of an expression type and its text, or take it from among those used lately.

    Raises SelectorError.
    """
    if kind != SQL92:
        raise SelectorError(f"{kind} is no known type of expression; there are TAG and {SQL92}")
    return Selector(text)
