"""Compiles an expression to a function of properties.

Counterpart: the evaluation half of org.apache.rocketmq.filter.expression (Apache). Conditions give True, False or None,
the unknown of SQL. If Java would throw, they raise ValueError, for example if a text that is not a number is compared
with a number. Decisions are made before the first message if possible: each comparison becomes a closure for the kinds
of its sides.
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
    Logic,
    Membership,
    Negation,
    Not,
    OrderComparison,
    Property,
    ValueType,
)
from rocketd.filter.java_numbers import compare_doubles, compare_integers, parse_double, parse_int, parse_long

Properties = Mapping[str, str]
Value = str | int | float | None
Evaluator = Callable[[Properties], Any]
"""Returns the value of an expression for the properties of one message. Raises ValueError."""

_Compare = Callable[[Any, Any], int]


def compile_expression(expression: Expression) -> Evaluator:
    """Return the function that evaluates an expression."""
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
        # False instead of unknown, unlike the reverse case. Apache does the same.
        return right_value is not None and compare(left_value, right_value) == 0

    return evaluate


def _order(expression: OrderComparison) -> Evaluator:
    holds = expression.holds
    left, right = expression.left, expression.right
    compare = _compare_as_doubles if left.kind is right.kind is ValueType.STRING else _comparison(left.kind, right.kind)
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
    """Compare a property with a constant, the main part of almost every filter."""
    constant: Any = right.value
    if right.kind is ValueType.STRING:
        # Texts have no order, so this is an equality.
        def evaluate(properties: Properties) -> bool | None:
            value = properties.get(name)
            return None if value is None else value == constant

    elif right.kind in (ValueType.INTEGER, ValueType.LONG):
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
    OrderComparison: _order,
    Membership: _membership,
}


# ---------------------------------------------------------------- comparisons of two values that are not null


def _comparison(left: ValueType, right: ValueType) -> _Compare:
    """Return Apache's comparison of two kinds: that of the side other than string. Integers and fractions mix."""
    if left is ValueType.STRING and right is ValueType.STRING:
        return _compare_strings
    if left is ValueType.STRING:
        read, compare = _READERS[right]
        return lambda text, value: compare(read(text), value)
    if right is ValueType.STRING:
        if left is ValueType.BOOLEAN:
            return _refuse  # Apache's cast fails here
        read, compare = _READERS[left]
        return lambda value, text: compare(value, read(text))
    if left in NUMBERS and right in NUMBERS:
        if ValueType.DOUBLE in (left, right):
            return lambda one, other: compare_doubles(float(one), float(other))
        return compare_integers
    return compare_integers if left is right else _less


def _less(*_: object) -> int:
    """Compare incomparable values: any result except "equal" is right."""
    return -1


def _refuse(left: object, right: object) -> int:
    raise ValueError(f"{left} cannot be compared with {right!r}")


def _compare_strings(left: str, right: str) -> int:
    return 0 if left == right else 1


def _compare_as_doubles(left: str, right: str) -> int:
    return compare_doubles(parse_double(left), parse_double(right))


_READERS: Final[dict[ValueType, tuple[Callable[[str], Any], _Compare]]] = {
    ValueType.INTEGER: (parse_int, compare_integers),
    ValueType.LONG: (parse_long, compare_integers),
    ValueType.DOUBLE: (parse_double, compare_doubles),
    ValueType.BOOLEAN: (lambda text: text.lower() == "true", compare_integers),
    ValueType.NULL: (lambda text: text, _less),
}
"""Reader and comparison of a text, by the kind of the other side."""
