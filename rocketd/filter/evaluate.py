"""From an expression to a function that judges properties.

Answers to the evaluation half of org.apache.rocketmq.filter.expression. Conditions give True, False or None, which is
SQL's unknown; where Java would throw, such as at the comparison of a text that is no number with a number, they raise
ValueError. What can be decided before the first message is: each comparison becomes a closure for the kinds of its sides.
"""

from collections.abc import Callable, Mapping
from operator import eq
from typing import Any, Final

from rocketd.filter.expressions import (
    NUMBERS,
    Cast,
    Constant,
    Equality,
    Expression,
    Kind,
    Logic,
    Membership,
    Negation,
    Not,
    Order,
    Property,
)
from rocketd.filter.java_numbers import compare_doubles, compare_integers, parse_double, parse_int, parse_long

Properties = Mapping[str, str]
Value = str | int | float | None
Evaluator = Callable[[Properties], Any]
"""Gives the value of an expression for the properties of one message. Raises ValueError."""

_Compare = Callable[[Any, Any], int]


def compile_expression(expression: Expression) -> Evaluator:
    """Make the function that evaluates an expression."""
    return _COMPILERS[type(expression)](expression)


def _property(expression: Property) -> Evaluator:
    name = expression.name
    return lambda properties: properties.get(name)


def _constant(expression: Constant) -> Evaluator:
    value = expression.value
    return lambda _: value


def _negation(expression: Negation) -> Evaluator:
    if expression.value is not None:
        value = expression.value
        return lambda _: value
    operand = compile_expression(expression.operand)

    def evaluate(properties: Properties) -> None:
        operand(properties)  # it may raise

    return evaluate


def _logic(expression: Logic) -> Evaluator:
    terms = tuple(map(compile_expression, expression.terms))
    decisive = expression.decisive
    other = not decisive

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = other
        for term in terms:
            value: bool | None = term(properties)
            if value is decisive:
                return value
            if value is None:
                result = None
        return result

    return evaluate


def _not(expression: Not) -> Evaluator:
    operand = compile_expression(expression.operand)

    def evaluate(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _cast(expression: Cast) -> Evaluator:
    name = expression.operand.name
    return lambda properties: False if name in properties else None


def _membership(expression: Membership) -> Evaluator:
    name, texts, negated = expression.operand.name, expression.texts, expression.negated

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in texts) is not negated

    return evaluate


def _equality(expression: Equality) -> Evaluator:
    left, right = expression.left, expression.right
    compare = _comparison(left.kind, right.kind)
    if isinstance(left, Property) and isinstance(right, Constant | Negation) and right.value is not None:
        return _judged(left.name, right, compare, eq)
    get_left, get_right = compile_expression(left), compile_expression(right)

    def evaluate(properties: Properties) -> bool | None:
        left_value = get_left(properties)
        right_value = get_right(properties)
        if left_value is None:
            return True if right_value is None else None
        # Not null, unlike the other way round: so it is in Apache's.
        return right_value is not None and compare(left_value, right_value) == 0

    return evaluate


def _order(expression: Order) -> Evaluator:
    holds = expression.holds
    left, right = expression.left, expression.right
    compare = _compare_as_doubles if left.kind is right.kind is Kind.STRING else _comparison(left.kind, right.kind)
    if isinstance(left, Property) and isinstance(right, Constant | Negation) and right.value is not None:
        return _judged(left.name, right, compare, holds)
    get_left, get_right = compile_expression(left), compile_expression(right)

    def evaluate(properties: Properties) -> bool | None:
        left_value = get_left(properties)
        if left_value is None:
            return None
        right_value = get_right(properties)
        return None if right_value is None else holds(compare(left_value, right_value), 0)

    return evaluate


def _judged(name: str, right: Constant | Negation, compare: _Compare, holds: Callable[[Any, Any], bool]) -> Evaluator:
    """Compare a property with a constant: what nearly every filter consists of."""
    constant: Any = right.value
    if right.kind is Kind.STRING:
        # Texts have no order, so this is an equality.
        def evaluate(properties: Properties) -> bool | None:
            value = properties.get(name)
            return None if value is None else value == constant

    elif right.kind in (Kind.INTEGER, Kind.LONG):
        read = _READERS[right.kind][0]

        def evaluate(properties: Properties) -> bool | None:
            value = properties.get(name)
            return None if value is None else holds(read(value), constant)

    else:

        def evaluate(properties: Properties) -> bool | None:
            value = properties.get(name)
            return None if value is None else holds(compare(value, constant), 0)

    return evaluate


_COMPILERS: Final[dict[type[Expression], Callable[[Any], Evaluator]]] = {
    Property: _property,
    Constant: _constant,
    Negation: _negation,
    Logic: _logic,
    Not: _not,
    Cast: _cast,
    Equality: _equality,
    Order: _order,
    Membership: _membership,
}


# ---------------------------------------------------------------- comparisons of two values that are not null


def _comparison(left: Kind, right: Kind) -> _Compare:
    """How Apache compares values of two kinds: by that of the one that is no string, integers and fractions mixed."""
    if left is Kind.STRING and right is Kind.STRING:
        return _compare_strings
    if left is Kind.STRING:
        read, compare = _READERS[right]
        return lambda text, value: compare(read(text), value)
    if right is Kind.STRING:
        if left is Kind.BOOLEAN:
            return _refuse  # a cast that fails, in Apache's
        read, compare = _READERS[left]
        return lambda value, text: compare(value, read(text))
    if left in NUMBERS and right in NUMBERS:
        if Kind.DOUBLE in (left, right):
            return lambda one, other: compare_doubles(float(one), float(other))
        return compare_integers
    return compare_integers if left is right else _less


def _less(*_: object) -> int:
    """Compare what cannot be compared: any answer but "equal" would do."""
    return -1


def _refuse(left: object, right: object) -> int:
    raise ValueError(f"{left} cannot be compared with {right!r}")


def _compare_strings(left: str, right: str) -> int:
    return 0 if left == right else 1


def _compare_as_doubles(left: str, right: str) -> int:
    return compare_doubles(parse_double(left), parse_double(right))


_READERS: Final[dict[Kind, tuple[Callable[[str], Any], _Compare]]] = {
    Kind.INTEGER: (parse_int, compare_integers),
    Kind.LONG: (parse_long, compare_integers),
    Kind.DOUBLE: (parse_double, compare_doubles),
    Kind.BOOLEAN: (lambda text: text.lower() == "true", compare_integers),
    Kind.NULL: (lambda text: text, _less),
}
"""By the kind of the other side, how a text is read and then compared."""
