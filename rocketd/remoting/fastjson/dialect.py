"""JSON in the dialect of Java peers, for header, bodies and config files.

Counterpart: `RemotingSerializable` and FastJSON (Apache). ``decode`` tries the strict, fast reader first, then the
lenient one. ``loads`` reads without a type. ``dumps`` and ``dumps_pretty`` write.
"""

from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from rocketd.remoting.errors import JSON_ERRORS
from rocketd.remoting.fastjson.convert import converter_for
from rocketd.remoting.fastjson.reader import MAX_LENGTH, FastJSONError, loads
from rocketd.remoting.fastjson.writer import KeptTexts, as_text, dumps, dumps_pretty

__all__ = ["FastJSONError", "KeptTexts", "as_text", "decode", "dumps", "dumps_pretty", "loads"]

T = TypeVar("T")


@cache
def _strict_decoder(type_: object) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def decode(data: bytes, type_: type[T]) -> T:
    """Read a value of a declared type: a struct of ``bodies``, or a dict or list of them.

    Unknown members are ignored. Structs should be declared with ``forbid_unknown_fields``: a member spelled in another
    case is then found, but texts with unknown members are read slowly. Raises FastJSONError with the position or the
    wrong member.
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
