r"""Reads JSON as written by Java peers, and as accepted by their FastJSON.

Counterpart: the parser of com.alibaba.fastjson with its default features, as used by `RemotingSerializable` (Apache).
In addition to strict JSON it accepts: integers without quotes and objects as member names, single-quoted strings, a
comma before a closing bracket, ``\x41``, ``\v`` and ``\'`` escapes, raw control characters in strings, and invalid
UTF-8 (read as U+FFFD).
"""

import re
from typing import Any, Final, TypeAlias

from rocketd.remoting.errors import RemotingCommandError

MAX_LENGTH: Final = 64 * 1024 * 1024
"""Longest accepted text in bytes. A config file may be larger than a frame."""

MAX_DEPTH: Final = 64
"""Greatest nesting of objects and lists. Bodies of the protocol have at most eight levels."""

_MAX_DIGITS: Final = 400


class FastJSONError(RemotingCommandError):
    """The text is not JSON of an accepted dialect, or does not fit the wanted type.

    ``position`` is the character where reading failed, None if the text could be read. ``path`` then names the wrong
    member (``.consumerDataSet[0].messageModel``).
    """

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position
        self.path = ""

    def __str__(self) -> str:
        path = self.path.lstrip(".") + ": " if self.path else ""
        return path + self.reason + (f" at character {self.position}" if self.position is not None else "")


_MARK, _PLAIN, _ESCAPED, _SINGLE, _NUMBER, _WORD = range(1, 7)
_Token: TypeAlias = tuple[int, str]

# Possessive throughout: a text without its closing quote must not cause backtracking. Only characters and the last part of
# an alternative are: up to Python 3.11.4, a possessive group that matches in part consumes that part.
_next_token = re.compile(
    r"[ \t\r\n\f\ufeff]*+(?:"
    r"([{}\[\]:,])"
    r'|"([^"\\]*+)"'
    r'|"((?:[^"\\]++|\\.)*+)"'
    r"|'((?:[^'\\]++|\\.)*+)'"
    r"|([-+]?[0-9]++(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?)"
    r"|([A-Za-z]++))",
    re.DOTALL,
).match
# Common in offset tables: one match for the whole map is six times as fast as single tokens.
_pair = "-?[0-9]{1,19}:-?[0-9]{1,19}"
_integers_to_integers = re.compile(rf"({_pair}(?:,{_pair})*)[ \t\r\n]*+\}}").match
_space_to_end = re.compile(r"[ \t\r\n\f\0]*+").fullmatch
_escape = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_SHORT_ESCAPES: Final = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0", '"': '"', "'": "'", "/": "/", "\\": "\\",
}  # fmt: skip
_WORDS: Final = {"true": True, "false": False, "null": None}


def loads(data: bytes | str) -> Any:
    """Read one JSON value.

    Objects become dicts with keys of type str or int. An object used as a member name becomes a tuple of (name, value)
    pairs, sorted by name. Raises FastJSONError for invalid text.
    """
    if len(data) > MAX_LENGTH:
        raise FastJSONError(f"text of {len(data)} bytes is over the limit of {MAX_LENGTH}")
    return _Reader(data if isinstance(data, str) else data.decode("utf-8", "replace")).read()


class _Reader:
    """One pass over one text, with one method call per value."""

    __slots__ = ("_at", "_depth", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> Any:
        value = self._value(self._token())
        if not _space_to_end(self._text, self._at):
            raise self._error("something follows the value")
        return value

    def _error(self, reason: str) -> FastJSONError:
        return FastJSONError(reason, self._at)

    def _token(self) -> _Token:
        match = _next_token(self._text, self._at)
        if match is None:
            raise self._error("the text ends too early" if _space_to_end(self._text, self._at) else "not a JSON value")
        kind = match.lastindex or 0
        text = match[kind]
        if kind in (_ESCAPED, _SINGLE):
            text = self._unescape(text)
            kind = _PLAIN
        self._at = match.end()
        return kind, text

    def _unescape(self, text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            digits = match[1] or match[2]
            if digits:
                return chr(int(digits, 16))
            if match[3] not in _SHORT_ESCAPES:
                raise self._error(f"unknown escape \\{match[3]} in the string")
            return _SHORT_ESCAPES[match[3]]

        plain = _escape.sub(replace, text)
        if "\\u" in text:
            # Java writes a character beyond the BMP as two escapes. Half of one is not valid text.
            plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return plain

    def _value(self, token: _Token) -> Any:
        kind, text = token
        if kind == _PLAIN:
            return text
        if kind == _NUMBER:
            return self._number(text)
        if kind == _WORD and text in _WORDS:
            return _WORDS[text]
        if text == "{" or text == "[":
            if self._depth == MAX_DEPTH:
                raise self._error(f"more than {MAX_DEPTH} levels")
            self._depth += 1
            value = self._object() if text == "{" else self._list()
            self._depth -= 1
            return value
        raise self._error(f"expected a value, found {text!r:.50}")

    def _number(self, text: str) -> int | float:
        if len(text) > _MAX_DIGITS:
            raise self._error(f"number of {len(text)} digits")
        return int(text) if text.lstrip("+-").isdecimal() else float(text)

    def _list(self) -> list[Any]:
        items: list[Any] = []
        while (token := self._token()) != (_MARK, "]"):
            items.append(self._value(token))
            if self._ends("]"):
                break
        return items

    def _object(self) -> dict[Any, Any]:
        match = _integers_to_integers(self._text, self._at)
        if match:
            self._at = match.end()
            pairs = [pair.partition(":") for pair in match[1].split(",")]
            return {int(name): int(value) for name, _, value in pairs}
        members: dict[Any, Any] = {}
        while (token := self._token()) != (_MARK, "}"):
            name = self._name(token)
            if self._token() != (_MARK, ":"):
                raise self._error("expected a colon")
            members[name] = self._value(self._token())
            if self._ends("}"):
                break
        return members

    def _ends(self, closing: str) -> bool:
        """Read the token after an item: a comma or the end."""
        token = self._token()
        if token == (_MARK, closing):
            return True
        if token != (_MARK, ","):
            raise self._error(f"expected a comma or {closing}")
        return False

    def _name(self, token: _Token) -> Any:
        kind, text = token
        if kind == _PLAIN:
            return text
        name = self._value(token) if kind == _NUMBER or text == "{" else None
        if isinstance(name, int):
            return name
        if isinstance(name, dict):
            return _freeze(name)
        raise self._error(f"expected a member name, found {text!r:.50}")


def _freeze(value: object) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(((name, _freeze(member)) for name, member in value.items()), key=lambda pair: str(pair[0])))
    return tuple(map(_freeze, value)) if isinstance(value, list) else value
