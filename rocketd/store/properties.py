"""What the store needs to know of a message's properties: its tag, its keys, its delay.

Answers to what Apache's `CommitLog.checkMessageAndReturnSize` takes from them. Pure functions.
"""

import re

from rocketd.common.java_hash import java_string_hash
from rocketd.common.properties import find_property

# As find_property finds them, but all in one pass: not empty, and of equal names the last.
_DISPATCHED = re.compile(r"(?:\A|\x02)(TAGS|KEYS|UNIQ_KEY)\x01([^\x02]+)")


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
    level = find_property(properties, b"DELAY")
    return int(level) if level is not None and level.isdigit() else 0
