"""Where the values of settings come from: files, the environment, the command line.

Answers to Properties.load in NamesrvStartup and BrokerStartup and to TlsHelper's reading of its file. An assignment
keeps its place, so that an error can name it.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rocketd.common import properties_file
from rocketd.common.config import ConfigError, Setting

TLS_FILE = "tls.config.file"
USUAL_TLS_FILE = "/etc/rocketmq/tls.properties"
_VARIABLE = "environment variable "
NOT_IN_TLS_FILE = ("tls.server.mode", "tls.enable", TLS_FILE)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A value on its way to a setting; `where` is `FILE:LINE`, `-o`, `-n` or the name of a variable."""

    where: str
    key: str
    text: str

    @property
    def place(self) -> str:
        """``where`` without the line."""
        return self.where.rpartition(":")[0] or self.where

    @property
    def from_environment(self) -> bool:
        """Whether a variable of the environment gives the value."""
        return self.where.startswith(_VARIABLE)


def from_environment(settings: Iterable[Setting], environ: Mapping[str, str]) -> list[Assignment]:
    """Read the settings that have an environment variable; an empty one counts as unset."""
    return [
        Assignment(f"{_VARIABLE}{setting.environment}", setting.name, environ[setting.environment])
        for setting in settings
        if setting.environment is not None and environ.get(setting.environment)
    ]


def from_file(path: str) -> list[Assignment]:
    """Read a properties file. Raises ConfigError when it cannot be read or is malformed."""
    try:
        with open(path, "rb") as file:
            entries = properties_file.parse(properties_file.decode(file.read()))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return [Assignment(f"{path}:{entry.line}", entry.key, entry.value) for entry in entries]


def from_tls_file(others: Iterable[Assignment]) -> list[Assignment]:
    """Read the file of TLS settings: the one that `others` name, which must be there, else the usual one if it is."""
    named = [assignment.text.strip() for assignment in others if assignment.key == TLS_FILE]
    path = named[-1] if named else USUAL_TLS_FILE
    if path == USUAL_TLS_FILE and not os.path.isfile(path):
        return []
    return [assignment for assignment in from_file(path) if assignment.key not in NOT_IN_TLS_FILE]
