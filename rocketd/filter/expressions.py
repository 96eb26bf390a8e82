"""The parts of a filter expression, and the checks during construction.

Counterpart: the classes of org.apache.rocketmq.filter.expression (Apache) before evaluation. Expressions are immutable.
The type of an expression's values, its ``kind``, is known before evaluation. Null belongs to every kind. Properties
are strings.
"""

import enum
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from rocketd.filter.java_numbers import INT_MAX, LONG_MAX, compare_doubles, compare_integers

MAX_DEPTH: Final = 200
"""Levels of nested operators. Apache is only limited by its stack. A chain of ANDs or ORs counts once."""


class SelectorError(ValueError):
    """An invalid expression. The text is one line with the reason."""


class ValueType(enum.Enum):
    """Type of an expression's values in Java. NULL means that the value is always null."""

    STRING = enum.auto()
    INTEGER = enum.auto()
    LONG = enum.auto()
    DOUBLE = enum.auto()
    BOOLEAN = enum.auto()
    NULL = enum.auto()


NUMBERS: Final = frozenset({ValueType.INTEGER, ValueType.LONG, ValueType.DOUBLE})


@dataclass(frozen=True, slots=True)
class Expression:
    """Any expression. ``depth`` is the number of nested operators."""

    kind: ValueType
    depth: int


@dataclass(frozen=True, slots=True)
class Property(Expression):
    """The value of a property, null if the message does not have it."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A literal."""

    value: str | int | float | None


@dataclass(frozen=True, slots=True)
class Negation(Expression):
    """Minus. ``value`` is its result, null if the operand is not a number."""

    operand: Expression
    value: int | float | None


@dataclass(frozen=True, slots=True)
class Condition(Expression):
    """An expression with the values true, false or null."""


@dataclass(frozen=True, slots=True)
class Logic(Condition):
    """AND of its terms, or OR if ``decisive`` is true."""

    terms: list[Expression]
    decisive: bool


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """True for false, and false for true."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Cast(Condition):
    """A property as a condition: never true, because its value is a string."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Equality(Condition):
    """Whether two values are equal. Two nulls are equal."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class OrderComparison(Condition):
    """Comparison of two values. ``holds`` gets the sign of the comparison and 0."""

    left: Expression
    right: Expression
    holds: Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Membership(Condition):
    """Whether a property is one of some texts, or none of them."""

    operand: Property
    texts: frozenset[str]
    negated: bool


# ---------------------------------------------------------------- literals and names


def named(name: str) -> Property:
    """Return a property."""
    return Property(ValueType.STRING, 1, name)


def string(text: str) -> Constant:
    """Return a text."""
    return Constant(ValueType.STRING, 1, text)


def truth(value: bool) -> Constant:
    """Return TRUE or FALSE."""
    return Constant(ValueType.BOOLEAN, 1, value)


NULL: Final = Constant(ValueType.NULL, 1, None)


def decimal(digits: str) -> Constant:
    """Return an integer, of 32 bits if it fits. Raises SelectorError."""
    bare = digits.rstrip("lL")
    if len(bare) > len(str(LONG_MAX)) or int(bare) > LONG_MAX:
        raise SelectorError(f"{digits} is greater than {LONG_MAX}")
    value = int(bare)
    return Constant(ValueType.INTEGER if value <= INT_MAX else ValueType.LONG, 1, value)


def fraction(text: str) -> Constant:
    """Return a number with a fraction. Raises SelectorError if it is too great, and for 0, like Apache."""
    value = float(text)
    if value == float("inf"):
        raise SelectorError(f"{text} is too large")
    if value == 0.0:
        raise SelectorError(f"{text} is smaller than the smallest possible fraction; write 0")
    return Constant(ValueType.DOUBLE, 1, value)


# ---------------------------------------------------------------- operators


def negate(operand: Expression) -> Expression:
    """Return a minus."""
    if isinstance(operand, Constant | Negation) and operand.kind in NUMBERS:
        value = operand.value
        assert isinstance(value, int | float)
        return Negation(operand.kind, _depth(operand), operand, -value)
    return Negation(ValueType.NULL, _depth(operand), operand, None)


def logic(left: Expression, right: Expression, *, decisive: bool) -> Expression:
    """Return an OR if ``decisive`` is true, else an AND. Raises SelectorError if an operand is not a condition.

    The terms of a left operator of the same sort are reused; it must not be used afterwards.
    """
    left, right = condition(left), condition(right)
    if isinstance(left, Logic) and left.decisive is decisive:
        left.terms.append(right)
        return Logic(ValueType.BOOLEAN, max(left.depth, _depth(right)), left.terms, decisive)
    return Logic(ValueType.BOOLEAN, _depth(left, right), [left, right], decisive)


def logic_not(operand: Expression) -> Expression:
    """Return a NOT. Raises SelectorError if the operand is not a condition."""
    operand = condition(operand)
    return Not(ValueType.BOOLEAN, _depth(operand), operand)


def condition(operand: Expression) -> Expression:
    """Return an expression as a condition. Raises SelectorError if it cannot be one."""
    if _is_condition(operand):
        return operand
    if isinstance(operand, Property):
        return Cast(ValueType.BOOLEAN, _depth(operand), operand)
    raise SelectorError(f"{_describe(operand)} is not a condition")


def equal(left: Expression, right: Expression) -> Expression:
    """Return the condition ``left = right``. Raises SelectorError if they cannot be compared."""
    for operand in (left, right):
        if operand is NULL:
            raise SelectorError("a value cannot be equal to NULL; write IS NULL")
    if (
        isinstance(left, Constant)
        and isinstance(right, Constant)
        and left.kind is ValueType.BOOLEAN
        and right.kind is not ValueType.BOOLEAN
    ):
        raise SelectorError(f"{_describe(left)} cannot be compared with {_describe(right)}")
    return Equality(ValueType.BOOLEAN, _depth(left, right), left, right)


def is_null(operand: Expression) -> Expression:
    """Return the condition ``operand IS NULL``."""
    return Equality(ValueType.BOOLEAN, _depth(operand), operand, NULL)


def order(left: Expression, right: Expression, holds: Callable[[int, int], bool]) -> Expression:
    """Return a comparison such as ``<``. Raises SelectorError for values without an order."""
    for operand in (left, right):
        if _is_condition(operand) or (isinstance(operand, Constant) and operand.kind not in NUMBERS):
            raise SelectorError(f"{_describe(operand)} cannot be compared with < or >; only numbers can")
    return OrderComparison(ValueType.BOOLEAN, _depth(left, right), left, right, holds)


def between(value: Expression, low: Expression, high: Expression) -> Expression:
    """Return a BETWEEN. Raises SelectorError, also for two constants in the wrong order."""
    at_least = order(value, low, operator.ge)
    at_most = order(value, high, operator.le)
    if isinstance(low, Constant) and isinstance(high, Constant) and _compare_constants(low, high) > 0:
        raise SelectorError(f"BETWEEN {low.value} AND {high.value} is empty: the lesser value comes first")
    return logic(at_least, at_most, decisive=False)


def not_between(value: Expression, low: Expression, high: Expression) -> Expression:
    """Return a NOT BETWEEN. Raises SelectorError."""
    return logic(order(value, low, operator.lt), order(value, high, operator.gt), decisive=True)


def membership(operand: Expression, texts: Iterable[str], *, negated: bool) -> Expression:
    """Return an IN or a NOT IN. Raises SelectorError unless the operand is a property."""
    if not isinstance(operand, Property):
        raise SelectorError(f"IN is for properties, not for {_describe(operand)}")
    return Membership(ValueType.BOOLEAN, _depth(operand), operand, frozenset(texts), negated)


def names_in(expression: Expression) -> set[str]:
    """Return the names of an expression's properties."""
    if isinstance(expression, Property):
        return {expression.name}
    if isinstance(expression, Logic):
        return set().union(*map(names_in, expression.terms))
    if isinstance(expression, Equality | OrderComparison):
        return names_in(expression.left) | names_in(expression.right)
    if isinstance(expression, Negation | Not | Cast | Membership):
        return names_in(expression.operand)
    return set()


def _is_condition(expression: Expression) -> bool:
    return isinstance(expression, Condition) or (
        isinstance(expression, Constant) and expression.kind in (ValueType.BOOLEAN, ValueType.NULL)
    )


def _compare_constants(left: Constant, right: Constant) -> int:
    assert isinstance(left.value, int | float)
    assert isinstance(right.value, int | float)
    if ValueType.DOUBLE in (left.kind, right.kind):
        return compare_doubles(float(left.value), float(right.value))
    return compare_integers(int(left.value), int(right.value))


def _depth(*operands: Expression) -> int:
    depth = 1 + max(operand.depth for operand in operands)
    if depth > MAX_DEPTH:
        raise SelectorError(f"more than {MAX_DEPTH} operators are nested")
    return depth


def _describe(expression: Expression) -> str:
    if isinstance(expression, Property):
        return f"property {expression.name}"
    if isinstance(expression, Constant):
        if isinstance(expression.value, bool) or expression.value is None:
            return "NULL" if expression.value is None else str(expression.value).upper()
        return repr(expression.value)
    return "a negated value" if isinstance(expression, Negation) else "a condition"
