"""Parses the text of a filter to its expression.

Counterpart: `SelectorParser` (Apache). As in Apache, only the first word after a complete expression is looked at: ``a
= 1 b = 2`` means ``a = 1``. Importing this module takes a quarter of a second, because it imports lark.
"""

import operator
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from rocketd.filter import expressions
from rocketd.filter.expressions import Expression, SelectorError
from rocketd.filter.grammar import GRAMMAR, KEYWORDS

MAX_LENGTH: Final = 64 * 1024
"""Greatest length of an expression in characters. A longer one would keep its thread busy for too long."""

MAX_OPEN: Final = 1000
"""Unfinished words and parts of an expression, mostly open parentheses."""

_SHOWN: Final = 40


class Parsed(NamedTuple):
    """An expression, and the position in its text where parsing ended: its length unless more text follows."""

    expression: Expression
    end: int


def parse(text: str) -> Parsed:
    """Parse an expression that is a condition. Raises SelectorError. Any thread."""
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"the expression has {len(text)} characters, the limit is {MAX_LENGTH}")
    run = _parser().parse_interactive(text)
    last: Token | None = None
    try:
        for token in run.lexer_thread.lex(run.parser_state):
            last = token
            try:
                run.feed_token(token)
            except UnexpectedToken:
                return Parsed(_finish(run, last, refused=True), token.start_pos or 0)
            if len(run.parser_state.value_stack) > MAX_OPEN:
                raise SelectorError(f"parentheses are nested too deeply in line {token.line}, column {token.column}")
        return Parsed(_finish(run, last, refused=False), len(text))
    except UnexpectedCharacters as error:
        raise SelectorError(
            f"{error.char!r} in line {error.line}, column {error.column} is not expected there"
        ) from None


def _finish(run: Any, last: Token | None, *, refused: bool) -> Expression:
    """End at the end of the text, or before its last token if it was refused."""
    try:
        result: Expression = run.feed_eof(last)
    except UnexpectedToken:
        if last is None:
            raise SelectorError("the expression is empty") from None
        if not refused:
            raise SelectorError(f"the expression ends too early, after {_shown(last)}") from None
        raise SelectorError(f"{_shown(last)} in line {last.line}, column {last.column} does not fit there") from None
    return expressions.condition(result)


def _shown(token: Token) -> str:
    return token if len(token) <= _SHOWN else f"{token[:_SHOWN]}..."


@cache
def _parser() -> Lark:
    return Lark(
        GRAMMAR,
        parser="lalr",
        lexer="basic",
        start="selector",
        transformer=_Builder(),
        lexer_callbacks={"WORD": _tell_keyword},
    )


def _tell_keyword(token: Token) -> Token:
    word = token.upper()
    return Token.new_borrow_pos("_" + word, token, token) if word in KEYWORDS else token


def _decode_string(token: str) -> str:
    return token[1:-1].replace("''", "'")


def _ordered(holds: Callable[[int, int], bool]) -> Callable[[Any, Expression, Expression], Expression]:
    return lambda _, left, right: expressions.order(left, right, holds)


@v_args(inline=True)
class _Builder(Transformer[Token, Expression]):
    """Builds the expression from its parts, in Apache's order. Methods are named after the rules of the grammar."""

    greater = _ordered(operator.gt)
    greater_or_equal = _ordered(operator.ge)
    less = _ordered(operator.lt)
    less_or_equal = _ordered(operator.le)

    def logic_or(self, left: Expression, right: Expression) -> Expression:
        return expressions.logic(left, right, decisive=True)

    def logic_and(self, left: Expression, right: Expression) -> Expression:
        return expressions.logic(left, right, decisive=False)

    def logic_not(self, operand: Expression) -> Expression:
        return expressions.logic_not(operand)

    def equal(self, left: Expression, right: Expression) -> Expression:
        return expressions.equal(left, right)

    def not_equal(self, left: Expression, right: Expression) -> Expression:
        return expressions.logic_not(expressions.equal(left, right))

    def is_null(self, operand: Expression) -> Expression:
        return expressions.is_null(operand)

    def is_not_null(self, operand: Expression) -> Expression:
        return expressions.logic_not(expressions.is_null(operand))

    def between(self, value: Expression, low: Expression, high: Expression) -> Expression:
        return expressions.between(value, low, high)

    def not_between(self, value: Expression, low: Expression, high: Expression) -> Expression:
        return expressions.not_between(value, low, high)

    def is_in(self, operand: Expression, texts: list[str]) -> Expression:
        return expressions.membership(operand, texts, negated=False)

    def is_not_in(self, operand: Expression, texts: list[str]) -> Expression:
        return expressions.membership(operand, texts, negated=True)

    def texts(self, *tokens: Token) -> list[str]:
        return [_decode_string(token) for token in tokens]

    def negate(self, operand: Expression) -> Expression:
        return expressions.negate(operand)

    def same(self, operand: Expression) -> Expression:
        return operand

    def named(self, token: Token) -> Expression:
        return expressions.named(str(token))

    def string(self, token: Token) -> Expression:
        return expressions.string(_decode_string(token))

    def decimal(self, token: Token) -> Expression:
        return expressions.decimal(token)

    def float(self, token: Token) -> Expression:
        return expressions.fraction(token)

    def true(self) -> Expression:
        return expressions.truth(True)

    def false(self) -> Expression:
        return expressions.truth(False)

    def null(self) -> Expression:
        return expressions.NULL
