"""The nearest known word to a mistyped one, for helpful messages.

Apache silently ignores unknown keys.
"""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`, or None unless seven tenths of the letters of both agree.

    Case and the dashes of options do not count: they would make short options similar.
    """
    import difflib  # few programs make such a mistake

    by_letters = {_letters(each): each for each in known}
    found = difflib.get_close_matches(_letters(word), by_letters, n=1, cutoff=0.7)
    return by_letters[found[0]] if found else None


def _letters(word: str) -> str:
    return word.lstrip("-").lower()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` to append to a message, or nothing without a similar word."""
    found = nearest(word, known)
    return f"; did you mean {found}?" if found else ""
