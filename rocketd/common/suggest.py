"""The nearest known word to a mistyped one, for messages that help.

Apache passes over unknown keys in silence; this is what we say instead.
"""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, letter case aside, or None when none is like it."""
    by_folded = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` to put behind a message, or nothing when no known word is near."""
    found = nearest(word, known)
    return f"; did you mean {found}?" if found else ""
