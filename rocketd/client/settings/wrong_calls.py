"""Answers a wrong call of a public class or method with its name and its parameters."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, Final

from rocketd.client.settings.option_names import check_names

NO_ANSWERS: Final[Mapping[str, str]] = {}

_SHOWN_KEYWORDS: Final = 5
"""Number of keyword parameters that an error shows of a call."""


def class_name(cls: type) -> str:
    """Return the name of a class as programs import it."""
    return f"{cls.__module__}.{cls.__name__}"


def check_call(
    name: str,
    function: Callable[..., Any],
    arguments: Sequence[object],
    keywords: Mapping[str, object],
    answers: Mapping[str, str] = NO_ANSWERS,
) -> None:
    """Raise TypeError if a function cannot be called so. Its first parameter is ``self``, and is not given.

    ``name`` is the function's name for programs. ``answers`` are those to unknown keywords.
    """
    parameters = signature(function)
    try:
        parameters.bind(None, *arguments, **keywords)
    except TypeError as error:
        wrong = str(error)
    else:
        return
    known = list(parameters.parameters.values())[1:]
    check_names(name, keywords, [one.name for one in known], answers, "parameter")
    raise TypeError(f"{name}: {wrong}; its parameters are ({_shown(known)})")


def _shown(parameters: Sequence[Parameter]) -> str:
    """Return the parameters of a call, those with a default as ``name=``."""
    by_place = [one for one in parameters if one.kind is not Parameter.KEYWORD_ONLY]
    by_name = [one for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
    words = [one.name if one.default is Parameter.empty else f"{one.name}=" for one in (*by_place, *by_name)]
    if by_name:
        words.insert(len(by_place), "*")
    limit = len(by_place) + 1 + _SHOWN_KEYWORDS
    return ", ".join([*words[:limit], "..."] if len(words) > limit else words)
