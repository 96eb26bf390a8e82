"""What the store needs to know of a message's properties: its tag, its keys, its delay.

Answers to what Apache's `CommitLog.checkMessageAndReturnSize` takes from them. Pure functions. Compiled where a C compiler
is.
"""

from rocketd.common.java_hash import java_string_hash
from rocketd.common.properties import find_property


def dispatch_properties(properties: bytes) -> tuple[int, tuple[str, ...]]:
    """What dispatch needs: the tags code, and what the message is to be found by (UNIQ_KEY first, then each word of
    KEYS).

    The tags code is the hash of TAGS, 0 without. As for find_property, an empty value is none, and of equal names the
    last counts.
    """
    tag = unique = keys = ""
    for entry in properties.decode("utf-8", "replace").split("\x02"):
        if entry.startswith("UNIQ_KEY\x01"):
            unique = entry[9:] or unique
        elif entry.startswith("TAGS\x01"):
            tag = entry[5:] or tag
        elif entry.startswith("KEYS\x01"):
            keys = entry[5:] or keys
    return java_string_hash(tag) if tag else 0, index_keys(unique, keys)


def index_keys(unique_key: str | None, keys: str | None) -> tuple[str, ...]:
    """What a message can be found by: its unique key first, then each of its keys."""
    if not keys:
        return (unique_key,) if unique_key else ()
    words = [word for word in keys.split(" ") if word]
    if unique_key:
        words.insert(0, unique_key)
    return tuple(words)


def delay_level_of(properties: bytes) -> int:
    """Delay level, 0 without one."""
    level = find_property(properties, b"DELAY")
    return int(level) if level is not None and level.isdigit() else 0
