"""The options that most commands for administration have."""

from collections.abc import Callable
from typing import Any

import click

OF_CLUSTER = click.option(
    "--cluster", "cluster_name", metavar="NAME", help="Only at the brokers of this cluster. Default: all brokers."
)


def yes(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--yes``. ``what`` is the sentence of its effect."""
    return click.option("--yes", is_flag=True, help=f"{what} Default: print what would be done.")
