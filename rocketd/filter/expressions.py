"""What a filter expression consists of, and what Apache refuses when it is put together.

Answers to the classes of org.apache.rocketmq.filter.expression as far as they exist before evaluation. Expressions are
immutable; every one has a kind, that of its values other than null, which is known beforehand: properties are strings.
"""

import enum
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from rocketd.filter.java_numbers import INT_MAX, LONG_MAX, compare_doubles, compare_integers

MAX_DEPTH: Final = 200
"""Levels of operators within each other; Apache has no such limit but its stack. AND and OR in a row count once."""


class SelectorError(ValueError):
    """An expression that is none; the text, one line, says what is wrong with it."""


class Kind(enum.Enum):
    """Type of an expression's values, as Java has them. NULL is that of what never has another value than null."""

    STRING = enum.auto()
    INTEGER = enum.auto()
    LONG = enum.auto()
    DOUBLE = enum.auto()
    BOOLEAN = enum.auto()
    NULL = enum.auto()


NUMBERS: Final = frozenset({Kind.INTEGER, Kind.LONG, Kind.DOUBLE})


@dataclass(frozen=True, slots=True)
class Expression:
    """Any expression; ``depth`` counts the operators within each other."""

    kind: Kind
    depth: int


@dataclass(frozen=True, slots=True)
class Property(Expression):
    """The value of a property, null where the message has none of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A literal."""

    value: str | int | float | None


@dataclass(frozen=True, slots=True)
class Negation(Expression):
    """Minus; ``value`` is what comes out of it, null where the operand is no number."""

    operand: Expression
    value: int | float | None


@dataclass(frozen=True, slots=True)
class Condition(Expression):
    """What may be true, false or null."""


@dataclass(frozen=True, slots=True)
class Logic(Condition):
    """AND of its terms or, where ``decisive`` is true, OR."""

    terms: list[Expression]
    decisive: bool


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """True for false and the reverse."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Cast(Condition):
    """A property in the place of a condition: never true, as its value is a string."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Equality(Condition):
    """Whether two values are the same, two nulls being so."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Order(Condition):
    """How two values compare; ``holds`` judges the sign of the comparison, together with 0."""

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
    """Make a property."""
    return Property(Kind.STRING, 1, name)


def string(text: str) -> Constant:
    """Make a text."""
    return Constant(Kind.STRING, 1, text)


def truth(value: bool) -> Constant:
    """Make TRUE or FALSE."""
    return Constant(Kind.BOOLEAN, 1, value)


NULL: Final = Constant(Kind.NULL, 1, None)


def decimal(digits: str) -> Constant:
    """Make an integer, of 32 bits where it fits. Raises SelectorError."""
    bare = digits.rstrip("lL")
    if len(bare) > len(str(LONG_MAX)) or int(bare) > LONG_MAX:
        raise SelectorError(f"{digits} is greater than {LONG_MAX}")
    value = int(bare)
    return Constant(Kind.INTEGER if value <= INT_MAX else Kind.LONG, 1, value)


def fraction(text: str) -> Constant:
    """Make a number with a fraction. Raises SelectorError for one that is too great, and for 0 as Apache does."""
    value = float(text)
    if value == float("inf"):
        raise SelectorError(f"{text} is too great")
    if value == 0.0:
        raise SelectorError(f"{text} is less than the least fraction there is; write 0")
    return Constant(Kind.DOUBLE, 1, value)


# ---------------------------------------------------------------- operators


def negate(operand: Expression) -> Expression:
    """Make a minus."""
    if isinstance(operand, Constant | Negation) and operand.kind in NUMBERS:
        value = operand.value
        assert isinstance(value, int | float)
        return Negation(operand.kind, _depth(operand), operand, -value)
    return Negation(Kind.NULL, _depth(operand), operand, None)


def logic(left: Expression, right: Expression, *, decisive: bool) -> Expression:
    """Make an OR where ``decisive`` is true, else an AND. Raises SelectorError for what is no condition.

    Takes over the terms of an operator of the same sort on the left, which may not be used afterwards.
    """
    left, right = condition(left), condition(right)
    if isinstance(left, Logic) and left.decisive is decisive:
        left.terms.append(right)
        return Logic(Kind.BOOLEAN, max(left.depth, _depth(right)), left.terms, decisive)
    return Logic(Kind.BOOLEAN, _depth(left, right), [left, right], decisive)


def logic_not(operand: Expression) -> Expression:
    """Make a NOT. Raises SelectorError for what is no condition."""
    operand = condition(operand)
    return Not(Kind.BOOLEAN, _depth(operand), operand)


def condition(operand: Expression) -> Expression:
    """Take an expression where a condition is needed. Raises SelectorError for what cannot be one."""
    if _is_condition(operand):
        return operand
    if isinstance(operand, Property):
        return Cast(Kind.BOOLEAN, _depth(operand), operand)
    raise SelectorError(f"{_describe(operand)} is no condition")


def equal(left: Expression, right: Expression) -> Expression:
    """Make an ``=``. Raises SelectorError."""
    for operand in (left, right):
        if operand is NULL:
            raise SelectorError("nothing can be equal to NULL; write IS NULL")
    if (
        isinstance(left, Constant)
        and isinstance(right, Constant)
        and left.kind is Kind.BOOLEAN
        and right.kind is not Kind.BOOLEAN
    ):
        raise SelectorError(f"{_describe(left)} cannot be compared with {_describe(right)}")
    return Equality(Kind.BOOLEAN, _depth(left, right), left, right)


def is_null(operand: Expression) -> Expression:
    """Make an IS NULL."""
    return Equality(Kind.BOOLEAN, _depth(operand), operand, NULL)


def order(left: Expression, right: Expression, holds: Callable[[int, int], bool]) -> Expression:
    """Make a comparison with ``<`` or its like. Raises SelectorError for what has no order."""
    for operand in (left, right):
        if _is_condition(operand) or (isinstance(operand, Constant) and operand.kind not in NUMBERS):
            raise SelectorError(f"{_describe(operand)} cannot be less or greater than anything; only numbers can")
    return Order(Kind.BOOLEAN, _depth(left, right), left, right, holds)


def between(value: Expression, low: Expression, high: Expression) -> Expression:
    """Make a BETWEEN. Raises SelectorError, also for two constants in the wrong order."""
    at_least = order(value, low, operator.ge)
    at_most = order(value, high, operator.le)
    if isinstance(low, Constant) and isinstance(high, Constant) and _compare_constants(low, high) > 0:
        raise SelectorError(f"nothing lies between {low.value} and {high.value}: the lesser one comes first")
    return logic(at_least, at_most, decisive=False)


def not_between(value: Expression, low: Expression, high: Expression) -> Expression:
    """Make a NOT BETWEEN. Raises SelectorError."""
    return logic(order(value, low, operator.lt), order(value, high, operator.gt), decisive=True)


def membership(operand: Expression, texts: Iterable[str], *, negated: bool) -> Expression:
    """Make an IN or a NOT IN. Raises SelectorError unless it is about a property."""
    if not isinstance(operand, Property):
        raise SelectorError(f"IN is for properties, not for {_describe(operand)}")
    return Membership(Kind.BOOLEAN, _depth(operand), operand, frozenset(texts), negated)


def names_in(expression: Expression) -> set[str]:
    """Name the properties that an expression asks for."""
    if isinstance(expression, Property):
        return {expression.name}
    if isinstance(expression, Logic):
        return set().union(*map(names_in, expression.terms))
    if isinstance(expression, Equality | Order):
        return names_in(expression.left) | names_in(expression.right)
    if isinstance(expression, Negation | Not | Cast | Membership):
        return names_in(expression.operand)
    return set()


def _is_condition(expression: Expression) -> bool:
    return isinstance(expression, Condition) or (
        isinstance(expression, Constant) and expression.kind in (Kind.BOOLEAN, Kind.NULL)
    )


def _compare_constants(left: Constant, right: Constant) -> int:
    assert isinstance(left.value, int | float)
    assert isinstance(right.value, int | float)
    if Kind.DOUBLE in (left.kind, right.kind):
        return compare_doubles(float(left.value), float(right.value))
    return compare_integers(int(left.value), int(right.value))


def _depth(*operands: Expression) -> int:
    depth = 1 + max(operand.depth for operand in operands)
    if depth > MAX_DEPTH:
        raise SelectorError(f"more than {MAX_DEPTH} operators stand within each other")
    return depth


def _describe(expression: Expression) -> str:
    if isinstance(expression, Property):
        return f"property {expression.name}"
    if isinstance(expression, Constant):
        if isinstance(expression.value, bool) or expression.value is None:
            return "NULL" if expression.value is None else str(expression.value).upper()
        return repr(expression.value)
    return "a negated value" if isinstance(expression, Negation) else "a condition"
