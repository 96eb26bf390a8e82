"""Options as fields of a dataclass: name, kind and doc follow from one declaration.

The option of the field `max_rows` is `maxRows`. Letter case is ignored, because Spark folds it. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from rocketd.common.suggest import did_you_mean
from rocketd.spark.errors import OptionError
from rocketd.spark.options.kinds import OptionKind

_HIDDEN = "(not shown)"


@dataclass(frozen=True, slots=True)
class Option:
    """One option, as listed in the reference.

    `default` is given in words, "" if unset. `only` is "batch" or "stream" if the option is limited to one of them.
    """

    name: str
    field: str
    kind: OptionKind[Any]
    default: str
    doc: str
    only: str = ""
    secret: bool = False


def option(
    kind: OptionKind[Any], default: object, doc: str, *, shown: str = "", only: str = "", secret: bool = False
) -> Any:
    """Return a dataclass field for an option. `shown` is its default in words, if it is not a text that a user can give."""
    metadata = {"kind": kind, "doc": doc, "shown": shown, "only": only, "secret": secret}
    return field(default=default, metadata=metadata, repr=not secret)


def camel(name: str) -> str:
    """Convert `max_rows` to `maxRows`."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def declared(options: type[Any]) -> tuple[Option, ...]:
    """Return the options of such a dataclass, in the order of its fields."""
    return tuple(
        Option(
            camel(one.name),
            one.name,
            one.metadata["kind"],
            one.metadata["shown"] or _in_words(one.default),
            one.metadata["doc"],
            one.metadata["only"],
            one.metadata["secret"],
        )
        for one in fields(options)
        if "kind" in one.metadata
    )


def _in_words(default: object) -> str:
    if default is None or default is MISSING or default in ("", ()):
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def read_values(
    known: tuple[Option, ...], given: Mapping[str, str], what: str, *, elsewhere: Callable[[str], str] | None = None
) -> dict[str, Any]:
    """Return the values of the given options, by field. `what` names the reader in messages, such as "a batch read".

    `elsewhere` may return a hint for an unknown name. Raises OptionError for an unknown option or an invalid value. The
    value of a secret never appears in the error.
    """
    by_name = {one.name.lower(): one for one in known}
    values: dict[str, Any] = {}
    for name, text in given.items():
        found = by_name.get(name.lower())
        if found is None:
            hint = elsewhere(name) if elsewhere else ""
            hint = hint or did_you_mean(name, [one.name for one in known])
            raise OptionError(f"{what} has no option {name!r}{hint or '; see docs/spark.md for those that there are'}")
        try:
            values[found.field] = found.kind.read(str(text))
        except (ValueError, KeyError, OverflowError) as error:
            shown = _HIDDEN if found.secret else repr(text)
            why = f" ({error})" if found.kind.accepted.startswith(("an SQL92", "a regular")) else ""
            raise OptionError(
                f"option {found.name} is {shown}{why}; accepted is {found.kind.accepted}"
            ) from (None if found.secret else error)  # fmt: skip
    return values
