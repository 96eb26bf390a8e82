"""The properties of a sent message.

Counterpart: `MessageDecoder.messageProperties2String` and `Validators` (Apache). Pure functions.
"""

from collections.abc import Mapping

from rocketd.common import message_properties as props
from rocketd.common.message_properties import MAX_LENGTH, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, encode_properties
from rocketd.protocol.errors import IllegalMessageError

EMPTY_BODY = "the body is empty, and the protocol has no messages without a body"


def property_table(given: Mapping[str, str], tags: str | None, keys: str | None, delay_level: int) -> dict[str, str]:
    """Return the application's properties together with those for tags, keys and delay level.

    ``keys`` are separated by blanks. Empty values and level 0 add nothing.
    """
    table = dict(given)
    if tags:
        table[props.TAGS] = tags
    if keys:
        table[props.KEYS] = keys
    if delay_level:
        table[props.DELAY] = str(delay_level)
    return table


def property_text(table: Mapping[str, str]) -> str:
    """Return the property string.

    Raises IllegalMessageError:

    - A name or value has a separator.
    - A name or value is not text, or UTF-8 cannot encode it.
    - The string has more than 32767 bytes.
    """
    text = encode_properties(table)
    # A separator inside a name or value changes the count. The encoder ends a string with one only after a zero.
    between = len(table) - 1 + text.endswith("\0" + PROPERTY_SEPARATOR)
    if table and (text.count(NAME_VALUE_SEPARATOR) != len(table) or text.count(PROPERTY_SEPARATOR) != between):
        raise IllegalMessageError("a property's name or value has \\x01 or \\x02, which separate properties")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise IllegalMessageError(f"a property is not a text that UTF-8 can encode: {error}") from error
    if size > MAX_LENGTH:
        raise IllegalMessageError(f"tags, keys and properties have {size} bytes together, more than {MAX_LENGTH}")
    return text
