"""JSON in the dialect of Java peers, for header, bodies and config files.

Answers to Apache's RemotingSerializable and the FastJSON below it. ``decode`` tries the strict, fast reader first; what it
refuses is read by the lenient one. ``loads`` reads without a type, ``dumps`` and ``dumps_pretty`` write.
"""

from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from rocketd.remoting.errors import JSON_ERRORS
from rocketd.remoting.fastjson_convert import converter_for
from rocketd.remoting.fastjson_reader import MAX_LENGTH, FastJSONError, loads
from rocketd.remoting.fastjson_writer import as_text, dumps, dumps_pretty

__all__ = ["FastJSONError", "as_text", "decode", "dumps", "dumps_pretty", "loads"]

T = TypeVar("T")


@cache
def _strict_decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def decode(data: bytes, type_: type[T]) -> T:
    """Read a value of a declared type: a struct of ``bodies``, or a dict or list of such.

    Unknown members are ignored. Structs should be declared with ``forbid_unknown_fields``: then a member spelled in
    another case is not missed, at the price that a text with unknown members is read slowly. Raises FastJSONError that
    tells the position, or the member that does not fit.
    """
    wanted: Any = type_
    if len(data) <= MAX_LENGTH:
        try:
            return cast(T, _strict_decoder(wanted).decode(data))
        except JSON_ERRORS:
            pass
    value = converter_for(wanted)(loads(data))
    if value is None:
        raise FastJSONError("the text is null")
    return cast(T, value)
