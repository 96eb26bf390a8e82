"""The place that a migration looks at: a store, with its configuration file and its installation."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from rocketd.store.base.layout import commit_log_dir, consume_queue_dir, index_dir

_USUAL_FILE = os.path.join("conf", "broker.conf")
_HOME_VARIABLE = "ROCKETMQ_HOME"


@dataclass(frozen=True, slots=True)
class MigrationPlace:
    """A broker's place: its configuration file, its installation, and settings before those of the file.

    File and installation are absolute paths, or None if they are unknown. ``store_given`` tells that the argument was the
    store's directory; the overrides then end with it.
    """

    argument: str
    config: str | None
    home: str | None
    overrides: tuple[tuple[str, str], ...]
    store_given: bool = False

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of the broker: that of this process, with the installation."""
        return os.environ if self.home is None else {**os.environ, _HOME_VARIABLE: self.home}


def find_place(argument: str, overrides: Sequence[tuple[str, str]] = ()) -> MigrationPlace:
    """Return the place that an argument names. Raises UsageError."""
    path = os.path.abspath(argument)
    options = tuple(overrides)
    if os.path.isfile(path):
        directory = os.path.dirname(path)
        home = os.path.dirname(directory) if os.path.basename(directory) == "conf" else os.environ.get(_HOME_VARIABLE)
        return MigrationPlace(argument, path, home, options)
    if any(os.path.isdir(part(path)) for part in (commit_log_dir, consume_queue_dir, index_dir)):
        options = (*options, ("storePathRootDir", path))
        return MigrationPlace(argument, None, os.environ.get(_HOME_VARIABLE), options, store_given=True)
    if os.path.isfile(os.path.join(path, _USUAL_FILE)):
        return MigrationPlace(argument, os.path.join(path, _USUAL_FILE), path, options)
    raise click.UsageError(
        f"{argument} is neither a store (commitlog, consumequeue), nor an installation with {_USUAL_FILE}, nor a "
        "configuration file"
    )
