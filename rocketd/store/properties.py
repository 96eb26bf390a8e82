"""Reading of Apache's property string, as bytes, without building a map where one name is asked for.

Answers to the property half of Apache's `MessageDecoder` and to `MessageExtBrokerInner.tagsString2tagsCode`. Pure
functions.
"""

import re

from rocketd.common.java_hash import java_string_hash

NAME_VALUE_SEPARATOR = b"\x01"
PROPERTY_SEPARATOR = b"\x02"

DELAY = b"DELAY"

# As property_value finds them, but all in one pass: not empty, and of equal names the last.
_DISPATCHED = re.compile(r"(?:\A|\x02)(TAGS|KEYS|UNIQ_KEY)\x01([^\x02]+)")


def property_value(properties: bytes, name: bytes) -> bytes | None:
    """Value of the last non-empty property of this name, None where there is none."""
    wanted = name + NAME_VALUE_SEPARATOR
    end = len(properties)
    while True:
        at = properties.rfind(wanted, 0, end)
        if at < 0:
            return None
        if at == 0 or properties[at - 1] == 2:
            begin = at + len(wanted)
            stop = properties.find(PROPERTY_SEPARATOR, begin)
            value = properties[begin:] if stop < 0 else properties[begin:stop]
            if value:
                return value
        end = at + len(wanted) - 1


def parse_properties(properties: bytes) -> dict[str, str]:
    """The string as a map, as Apache's `string2messageProperties` reads it.

    A last separator may be there or not, entries without a name or a value are left out, the last of equal names wins.
    """
    table: dict[str, str] = {}
    for entry in properties.decode("utf-8", "replace").split("\x02"):
        name, _, value = entry.partition("\x01")
        if name and value:
            table[name] = value
    return table


def dispatch_properties(properties: bytes) -> tuple[int, tuple[str, ...]]:
    """What dispatch needs: the tags code, and what the message is to be found by (UNIQ_KEY first, then each word of
    KEYS).

    The tags code is the hash of TAGS, 0 without.
    """
    found = dict(_DISPATCHED.findall(properties.decode("utf-8", "replace")))
    tag = found.get("TAGS")
    unique = found.get("UNIQ_KEY")
    keys = found.get("KEYS")
    tags_code = 0 if tag is None else java_string_hash(tag)
    if keys is None:
        return tags_code, () if unique is None else (unique,)
    words = [word for word in keys.split(" ") if word]
    if unique is not None:
        words.insert(0, unique)
    return tags_code, tuple(words)


def delay_level_of(properties: bytes) -> int:
    """Delay level, 0 without one."""
    level = property_value(properties, DELAY)
    return int(level) if level is not None and level.isdigit() else 0
