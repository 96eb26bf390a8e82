"""The command line that the daemons share.

Answers to ServerUtil.buildCommandlineOptions and the option handling of NamesrvStartup and BrokerStartup. An error is
one line on standard error and exit status 1: twistd itself would print its whole help and exit 0.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar

from twisted.application.service import IService
from twisted.logger import Logger
from twisted.python import usage

from rocketd.common.command_line import CommandLine
from rocketd.common.config import ConfigError, one_line
from rocketd.common.configuration import DaemonSettings
from rocketd.common.daemon import DaemonService
from rocketd.common.log_settings import LogConfig
from rocketd.common.monotonic_reactor import use_monotonic_clock

_log = Logger()


class DaemonOptions(CommandLine):
    """Options of one daemon; after parsing, `settings` holds what is in effect and `warnings` what to log at start."""

    command: ClassVar[str]
    """The twistd command, for messages."""
    settings_class: ClassVar[type[DaemonSettings]]

    optParameters: ClassVar[list[list[str | None]]] = [
        ["config", "c", None, "Java properties file with Apache's own keys."],
        [
            "namesrv-addr",
            "n",
            None,
            "Name servers, HOST:PORT separated by semicolons. A name server itself needs none.",
        ],
    ]
    optFlags: ClassVar[list[list[str]]] = [  # noqa: N815 - the name is Twisted's
        ["print-config", "p", "Print all settings in effect, with defaults, and exit."],
        ["print-important", "m", "Print the important settings in effect and exit."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.overrides: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.settings = self.settings_class()

    def opt_option(self, assignment: str) -> None:
        """Set KEY=VALUE, as in the file; may be repeated and wins over the file."""
        key, separator, value = assignment.partition("=")
        if not separator or not key.strip():
            raise usage.UsageError(f"-o {one_line(assignment)}: accepted is KEY=VALUE")
        self.overrides.append((key.strip(), value))

    opt_o = opt_option

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Parse the arguments; on an error print it as one line and leave with status 1.

        Within twistd, SIGINT ends the process without a traceback from here on, until the service takes its signals.
        """
        if getattr(self, "parent", None) is not None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            super().parseOptions(options)
        except usage.UsageError as error:
            raise SystemExit(f"{self.command}: {error}") from None

    def postOptions(self) -> None:
        """Load the settings and print them if that is asked for. Raises UsageError for what cannot be used."""
        try:
            self.settings, self.warnings = self.settings_class.load(
                self["config"], self.overrides, os.environ, namesrv_addr=self["namesrv-addr"]
            )
        except ConfigError as error:
            raise usage.UsageError(str(error)) from None
        for warning in self.warnings:
            print(f"{self.command}: {warning}", file=sys.stderr)
        if self["print-config"] or self["print-important"]:
            print(self.settings.printed(important_only=not self["print-config"]), end="")
            raise SystemExit(0)

    def make(self, service: Callable[[], IService], expected: tuple[type[Exception], ...]) -> IService:
        """Log the warnings and make the service, as the root of a process.

        ``expected`` are the errors that its making and its start may raise for the operator: each ends the process with
        one line.
        """
        for warning in self.warnings:
            _log.warn("{text}", text=warning)
        from twisted.internet import reactor

        # Before anything is made that keeps a reading of its time.
        use_monotonic_clock(reactor)
        try:
            made = service()
        except expected as error:
            raise SystemExit(f"{self.command}: {error}") from None
        log: LogConfig | None = getattr(self.settings, "log", None)
        return DaemonService(self.command, made, expected, getattr(self, "parent", None), log)
