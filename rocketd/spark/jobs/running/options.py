"""Declaration of job options: under headings, with alternatives, and with values by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import click
from click.core import ParameterSource


class Arguments(SimpleNamespace):
    """The values of a job's options by name. A repeatable option has a list."""


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Options of which at most one may be given, and exactly one if `required`."""

    names: tuple[str, ...]
    required: bool = False

    def check(self, context: click.Context) -> None:
        """Raise UsageError if the command line has too many of them, or none although one is required."""
        given = [name for name in self.names if _is_given(context, name)]
        if len(given) > 1:
            raise click.UsageError(f"{given[1]} is not allowed with {given[0]}", context)
        if self.required and not given:
            raise click.UsageError(f"{' or '.join(self.names)} is missing", context)


@dataclass(frozen=True, slots=True)
class Section:
    """Options shown under a heading of the help."""

    title: str
    options: Sequence[click.Option]
    alternatives: Sequence[Alternatives] = ()


def option(*declarations: str, **attributes: Any) -> click.Option:
    """Return an option. `attributes` are those of `click.Option`."""
    return click.Option(declarations, **attributes)


def flag(*declarations: str, help: str) -> click.Option:  # noqa: A002 - the name is click's
    """Return an option without a value, False unless it is given."""
    return click.Option(declarations, is_flag=True, help=help)


def number(text: str) -> float:
    """Read a number with or without a fraction, as the type of an option."""
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r}: accepted is a number") from None


def _is_given(context: click.Context, name: str) -> bool:
    return any(
        name in parameter.opts and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        for parameter in context.command.params
    )
