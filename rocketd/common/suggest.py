"""The nearest known word to a mistyped one, for helpful messages.

Apache silently ignores unknown keys.
"""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, ignoring case, or None if none is similar."""
    import difflib  # few programs make such a mistake

    by_folded = {each.lower(): each for each in known}
    found = difflib.get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` to append to a message, or nothing without a similar word."""
    found = nearest(word, known)
    return f"; did you mean {found}?" if found else ""
