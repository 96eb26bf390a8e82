"""Sources of setting values: files, the environment, the command line.

Counterpart: `Properties.load` in `NamesrvStartup` and `BrokerStartup`, and the file reading of `TlsHelper` (Apache). An
assignment keeps its place for error messages.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocketd.common.settings import properties_file
from rocketd.common.settings.declaration import ConfigError, Setting

TLS_FILE = "tls.config.file"
USUAL_TLS_FILE = "/etc/rocketmq/tls.properties"
_VARIABLE = "environment variable "
NOT_IN_TLS_FILE = ("tls.server.mode", "tls.enable", TLS_FILE)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A value assigned to a setting. `where` is `FILE:LINE`, `-o`, `-n` or the name of a variable."""

    where: str
    key: str
    text: str

    @property
    def place(self) -> str:
        """``where`` without the line."""
        return self.where.rpartition(":")[0] or self.where

    @property
    def from_environment(self) -> bool:
        """Whether an environment variable gives the value."""
        return self.where.startswith(_VARIABLE)


def from_environment(settings: Iterable[Setting], environ: Mapping[str, str]) -> list[Assignment]:
    """Read the settings with an environment variable. An empty one counts as unset."""
    return [
        Assignment(f"{_VARIABLE}{setting.environment}", setting.name, environ[setting.environment])
        for setting in settings
        if setting.environment is not None and environ.get(setting.environment)
    ]


def _place(path: str, error: OSError) -> str:
    """Return hints for a missing file: the working directory of a relative path, and the directory of the samples."""
    if not isinstance(error, FileNotFoundError):
        return ""
    samples = os.path.join(sys.prefix, "share", "rocketd", "etc")
    hints = ([] if os.path.isabs(path) else [f"the working directory is {os.getcwd()}"]) + (
        [f"samples are in {samples}"] if os.path.isdir(samples) else []
    )
    return "".join(f"; {hint}" for hint in hints)


def from_file(path: str) -> list[Assignment]:
    """Read a properties file. Raises ConfigError if it cannot be read or is malformed."""
    try:
        with open(path, "rb") as file:
            entries = properties_file.parse(properties_file.decode(file.read()))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}{_place(path, error)}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return [Assignment(f"{path}:{entry.line}", entry.key, entry.value) for entry in entries]


def from_tls_file(others: Iterable[Assignment]) -> list[Assignment]:
    """Read the file of TLS settings: the one named in `others`, which must exist, or else the usual one if it exists."""
    named = [assignment.text.strip() for assignment in others if assignment.key == TLS_FILE]
    path = named[-1] if named else USUAL_TLS_FILE
    if path == USUAL_TLS_FILE and not os.path.isfile(path):
        return []
    return [assignment for assignment in from_file(path) if assignment.key not in NOT_IN_TLS_FILE]
