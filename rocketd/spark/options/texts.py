"""Converts options written as Python values to the texts that Spark passes on. Pure."""

import datetime
import json
import os
from collections.abc import Mapping
from typing import Any

from rocketd.spark.errors import OptionError
from rocketd.spark.options.declare import camel

_SEPARATORS = {"namesrv": ";", "subExpression": " || "}
"""Separators of list values, for options that do not use a comma."""


def option_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return option texts by camelCase name, without options that are None.

    Raises OptionError for an option given twice, and for a value without a text form.
    """
    texts: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        written = camel(name)
        if written in texts:
            raise OptionError(f"option {written} was given twice, under two spellings")
        texts[written] = _text(written, value)
    return texts


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float, os.PathLike)):
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise OptionError(f"option {name} is {value}, a time without a zone: give it one, as datetime.UTC")
        return value.isoformat()
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = sorted(map(str, value)) if isinstance(value, (set, frozenset)) else map(str, value)
        return _SEPARATORS.get(name, ",").join(parts)
    raise OptionError(f"option {name} is a {type(value).__name__}, which has no text: give it as one")
