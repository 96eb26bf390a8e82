"""Reading of Apache's property string, as bytes, without building a map where one name is asked for.

Answers to the property half of Apache's `MessageDecoder` and to `MessageExtBrokerInner.tagsString2tagsCode`. Pure
functions.
"""

from rocketd.common.java_hash import java_string_hash
from rocketd.store.layout import SCHEDULE_TOPIC

NAME_VALUE_SEPARATOR = b"\x01"
PROPERTY_SEPARATOR = b"\x02"

TAGS = b"TAGS"
KEYS = b"KEYS"
UNIQ_KEY = b"UNIQ_KEY"
DELAY = b"DELAY"


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


def tags_code_of(properties: bytes) -> int:
    """Tags code of a message with these properties: the hash of TAGS, 0 without."""
    tag = property_value(properties, TAGS)
    return 0 if tag is None else java_string_hash(tag.decode("utf-8", "replace"))


def delay_level_of(topic: str, properties: bytes) -> int:
    """Delay level of a message that waits in SCHEDULE_TOPIC_XXXX, 0 for any other message."""
    if topic != SCHEDULE_TOPIC:
        return 0
    level = property_value(properties, DELAY)
    if level is None or not level.isdigit():
        return 0
    return int(level)


def index_keys_of(properties: bytes) -> tuple[str, ...]:
    """What a message is to be found by: UNIQ_KEY first, then each word of KEYS."""
    unique = property_value(properties, UNIQ_KEY)
    keys = property_value(properties, KEYS)
    if keys is None:
        return () if unique is None else (unique.decode("utf-8", "replace"),)
    words = [word for word in keys.decode("utf-8", "replace").split(" ") if word]
    if unique is not None:
        words.insert(0, unique.decode("utf-8", "replace"))
    return tuple(words)
