"""From an expression to a function that judges properties.

Answers to the evaluation half of org.apache.rocketmq.filter.expression. Conditions give True, False or None, which is
SQL's unknown; where Java would throw, they raise EvaluationError. What can be decided before the first message is: each
comparison becomes a closure for the kinds of its two sides.
"""

from collections.abc import Callable, Mapping
from operator import eq
from typing import Any, Final

from rocketd.filter import java_numbers
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
from rocketd.filter.java_numbers import compare_doubles, compare_integers

Properties = Mapping[str, str]
Value = str | int | float | None
Evaluator = Callable[[Properties], Any]
"""Gives the value of an expression for the properties of one message. Raises EvaluationError."""

_Compare = Callable[[Any, Any], int]


class EvaluationError(ValueError):
    """A comparison that is none, such as of a text that is no number with a number; the message does not match."""


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
    compare = _comparison(expression.left.kind, expression.right.kind)
    left = expression.left
    constant = expression.right.value if isinstance(expression.right, Constant) else None
    if isinstance(left, Property) and constant is not None:
        return _judged(left.name, constant, compare, eq)
    get_left, get_right = compile_expression(left), compile_expression(expression.right)

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
        return _judged(left.name, right.value, compare, holds)
    get_left, get_right = compile_expression(left), compile_expression(right)

    def evaluate(properties: Properties) -> bool | None:
        left_value = get_left(properties)
        if left_value is None:
            return None
        right_value = get_right(properties)
        return None if right_value is None else holds(compare(left_value, right_value), 0)

    return evaluate


def _judged(name: str, constant: Value, compare: _Compare, holds: Callable[[int, int], bool]) -> Evaluator:
    """Compare a property with a constant, the comparison that nearly every filter consists of."""

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
    raise EvaluationError(f"{left} cannot be compared with {right!r}")


def _compare_strings(left: str, right: str) -> int:
    return 0 if left == right else 1


def _compare_as_doubles(left: str, right: str) -> int:
    return compare_doubles(_read_double(left), _read_double(right))


def _reader(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise EvaluationError(str(error)) from None

    return read


_read_double = _reader(java_numbers.parse_double)

_READERS: Final[dict[Kind, tuple[Callable[[str], Any], _Compare]]] = {
    Kind.INTEGER: (_reader(java_numbers.parse_int), compare_integers),
    Kind.LONG: (_reader(java_numbers.parse_long), compare_integers),
    Kind.DOUBLE: (_read_double, compare_doubles),
    Kind.BOOLEAN: (lambda text: text.lower() == "true", compare_integers),
    Kind.NULL: (lambda text: text, _less),
}
"""By the kind of the other side, how a text is read and then compared."""
