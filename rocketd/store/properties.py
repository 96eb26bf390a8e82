"""What the store needs to know of a message's properties: its tag, its keys, its delay.

Answers to what Apache's `CommitLog.checkMessageAndReturnSize` takes from them. Pure functions. Compiled where a C compiler
is.
"""

from rocketd.common.java_hash import java_string_hash
from rocketd.common.properties import find_property


def dispatch_properties(properties: bytes) -> tuple[int, tuple[str, ...]]:
    """What dispatch needs of a stored property string: the tags code, and the keys by which the index finds the message.

    The tags code is the hash of TAGS, 0 without; of several, the last counts, as for find_property. The keys are each
    UNIQ_KEY, then each word of each KEYS: a message of a batch has its own, and the batch's behind them. An empty value is
    none.
    """
    tag = unique = keys = ""
    more: list[str] | None = None
    for entry in properties.decode("utf-8", "replace").split("\x02"):
        if entry.startswith("UNIQ_KEY\x01"):
            value = entry[9:]
            if not unique:
                unique = value
            elif value and value != unique and (more is None or value not in more):
                more = [value] if more is None else [*more, value]
        elif entry.startswith("TAGS\x01"):
            tag = entry[5:] or tag
        elif entry.startswith("KEYS\x01"):
            keys = f"{keys} {entry[5:]}" if keys else entry[5:]
    found = index_keys(unique, keys)
    if more is not None:
        found = (unique, *more, *found[1:])
    return java_string_hash(tag) if tag else 0, found


def index_keys(unique_key: str | None, keys: str | None) -> tuple[str, ...]:
    """The keys of a message that has each property once: its unique key first, then each word of KEYS."""
    if not keys:
        return (unique_key,) if unique_key else ()
    words = [word for word in keys.split(" ") if word]
    if unique_key:
        words.insert(0, unique_key)
    return tuple(words)


def fewer_index_keys(properties: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys of a property string of whose equal names only the first counts, or only the last.

    Apache's broker indexes the last of them, which of a batch are the batch's; an index may also have a message's own only.
    """
    entries = [entry for entry in properties.decode("utf-8", "replace").split("\x02") if entry[-1:] != "\x01"]
    return _keys_of(entries), _keys_of(entries[::-1])


def _keys_of(entries: list[str]) -> tuple[str, ...]:
    unique = next((entry[9:] for entry in entries if entry.startswith("UNIQ_KEY\x01")), None)
    keys = next((entry[5:] for entry in entries if entry.startswith("KEYS\x01")), None)
    return index_keys(unique, keys)


def delay_level_of(properties: bytes) -> int:
    """Delay level, 0 without one."""
    level = find_property(properties, b"DELAY")
    return int(level) if level is not None and level.isdigit() else 0
