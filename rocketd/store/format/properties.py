"""Reads tag, keys and delay level from a message's properties.

Counterpart: the part of `CommitLog.checkMessageAndReturnSize` (Apache) about properties. Pure functions, compiled if a
C compiler is present.
"""

from rocketd.common.java_hash import java_string_hash
from rocketd.common.message_properties import find_property


def dispatch_properties(properties: bytes) -> tuple[int, tuple[str, ...]]:
    """Return (tags code, index keys) of a stored property string.

    The tags code is the hash of TAGS, 0 without TAGS. If TAGS occurs several times, the last one counts, as in
    find_property. The keys are each UNIQ_KEY, then each word of each KEYS: a message of a batch has its own, followed
    by those of the batch. Empty values are ignored.
    """
    text = properties.decode("utf-8", "replace")
    unique = _only_value(text, "UNIQ_KEY\x01")
    keys = _only_value(text, "KEYS\x01")
    tag = _only_value(text, "TAGS\x01")
    if unique is None or keys is None or tag is None:
        return _properties_of_entries(text)
    return java_string_hash(tag) if tag else 0, index_keys(unique, keys)


def _only_value(text: str, name: str) -> str | None:
    """Return the value of a name with its separator, "" without one. None if the name is found several times."""
    at = text.find(name)
    if at < 0:
        return ""
    begin = at + len(name)
    if (at > 0 and text[at - 1] != "\x02") or text.find(name, begin) >= 0:
        return None
    end = text.find("\x02", begin)
    return text[begin:] if end < 0 else text[begin:end]


def _properties_of_entries(text: str) -> tuple[int, tuple[str, ...]]:
    """Do the same for a property string in which a name may occur several times."""
    tag = unique = keys = ""
    more: list[str] | None = None
    for entry in text.split("\x02"):
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
    """Return the keys of a message with one UNIQ_KEY and one KEYS: the unique key, then each word of KEYS."""
    if not keys:
        return (unique_key,) if unique_key else ()
    words = [word for word in keys.split(" ") if word]
    if unique_key:
        words.insert(0, unique_key)
    return tuple(words)


def fewer_index_keys(properties: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys if only the first of equal names counts, and the keys if only the last one counts.

    Apache's broker indexes the last: in a batch, these are the batch's keys. An index may also hold only the message's
    own.
    """
    entries = [entry for entry in properties.decode("utf-8", "replace").split("\x02") if entry[-1:] != "\x01"]
    return _keys_of(entries), _keys_of(entries[::-1])


def _keys_of(entries: list[str]) -> tuple[str, ...]:
    unique = next((entry[9:] for entry in entries if entry.startswith("UNIQ_KEY\x01")), None)
    keys = next((entry[5:] for entry in entries if entry.startswith("KEYS\x01")), None)
    return index_keys(unique, keys)


def delay_level_of(properties: bytes) -> int:
    """Return the delay level, 0 without one."""
    level = find_property(properties, b"DELAY")
    return int(level) if level is not None and level.isdigit() else 0
