"""JSON in the dialect of Java peers, for header, bodies and config files.

Answers to Apache's RemotingSerializable and the FastJSON below it. ``decode`` tries the strict, fast reader first; what it
refuses is read by the lenient one. ``loads`` reads without a type, ``dumps`` and ``dumps_pretty`` write.
"""

from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from rocketd.remoting.fastjson_convert import converter_for
from rocketd.remoting.fastjson_reader import MAX_LENGTH, FastJSONError, loads
from rocketd.remoting.fastjson_writer import as_text, dumps, dumps_pretty

__all__ = ["FastJSONError", "as_text", "decode", "dumps", "dumps_pretty", "loads"]

T = TypeVar("T")


@cache
def _strict_decoder(type_: Any) -> msgspec.json.Decoder[Any] | None:
    """Make the fast decoder of a type; None when it has maps with objects as keys, which no strict JSON can hold."""
    try:
        return msgspec.json.Decoder(type_)
    except TypeError:
        return None


def decode(data: bytes, type_: type[T]) -> T:
    """Read a value of a declared type: a struct of ``bodies``, or a dict or list of such.

    Unknown members are ignored. Raises FastJSONError that tells the position, or the member that does not fit.
    """
    wanted: Any = type_
    strict = _strict_decoder(wanted)
    if strict is not None and len(data) <= MAX_LENGTH:
        try:
            return cast(T, strict.decode(data))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    value = converter_for(wanted)(loads(data))
    if value is None:
        raise FastJSONError("the text is null")
    return cast(T, value)
