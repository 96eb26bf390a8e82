"""The common command line of the daemons.

Counterpart: `ServerUtil.buildCommandlineOptions`, and the option handling of `NamesrvStartup` and `BrokerStartup`
(Apache). An error is one line on standard error and exit status 1. Without this, twistd would print its whole help and
exit 0.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar

from twisted.application.service import IService
from twisted.logger import Logger
from twisted.python import usage

from rocketd.common.event_loop.monotonic_reactor import use_monotonic_clock
from rocketd.common.event_loop.reactor import global_reactor
from rocketd.common.logs.settings import LogConfig
from rocketd.common.process.cpu_affinity import CpuAffinity
from rocketd.common.process.daemon import DaemonService
from rocketd.common.process.process_settings import ProcessConfig
from rocketd.common.process.version import version_text
from rocketd.common.settings.daemon_settings import DaemonSettings
from rocketd.common.settings.declaration import ConfigError, one_line

_log = Logger()


class DaemonOptions(usage.Options):
    """Options of one daemon. After parsing, `settings` has the values, and `warnings` the lines to log at start."""

    command: ClassVar[str]
    """The twistd command, for messages."""
    settings_class: ClassVar[type[DaemonSettings]]
    longdesc = ""
    """Empty, because Twisted would otherwise print the docstring of the main module."""

    optParameters: ClassVar[list[list[str | None]]] = [
        ["config", "c", None, "Settings file, in Java properties syntax with Apache's keys."],
        [
            "namesrv-addr",
            "n",
            None,
            "Name servers, HOST:PORT, separated by semicolons. A name server ignores it.",
        ],
    ]
    optFlags: ClassVar[list[list[str]]] = [  # noqa: N815 - the name is Twisted's
        ["print-config", "p", "Print all settings in effect, and exit."],
        ["print-important", "m", "Print the important settings in effect, and exit."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self.overrides: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.settings = self.settings_class()

    def opt_option(self, assignment: str) -> None:
        """Set KEY=VALUE, with precedence over the file. May be repeated."""
        key, separator, value = assignment.partition("=")
        if not separator or not key.strip():
            raise usage.UsageError(f"-o {one_line(assignment)}: accepted is KEY=VALUE")
        self.overrides.append((key.strip(), value))

    opt_o = opt_option

    def opt_version(self) -> None:
        """Print the version and which core runs, and exit."""
        print(version_text())
        raise SystemExit(0)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Parse the arguments. On an error, print it as one line and exit with status 1.

        Within twistd, SIGINT ends the process without a traceback from here on, until the service handles signals.
        """
        if getattr(self, "parent", None) is not None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            super().parseOptions(options)
        except usage.UsageError as error:
            raise SystemExit(f"{self.command}: {error}") from None

    def postOptions(self) -> None:
        """Load the settings, and print them on request. Raises UsageError for unusable settings."""
        try:
            self.settings, self.warnings = self.settings_class.load(
                self["config"], self.overrides, os.environ, namesrv_addr=self["namesrv-addr"]
            )
        except ConfigError as error:
            raise usage.UsageError(str(error)) from None
        printing = self["print-config"] or self["print-important"]
        if printing or not self._logs_here():
            for warning in self.warnings:
                print(f"{self.command}: {warning}", file=sys.stderr)
        if printing:
            print(self.settings.printed(important_only=not self["print-config"]), end="")
            raise SystemExit(0)

    def _logs_here(self) -> bool:
        """Return whether standard output gets the log, and so the warnings."""
        twistd = getattr(self, "parent", None)
        return twistd is not None and bool(twistd["nodaemon"]) and twistd["logfile"] in (None, "-")

    def make(self, service: Callable[[], IService], expected: tuple[type[Exception], ...]) -> IService:
        """Log the warnings and create the service as the root of a process.

        ``expected`` are the errors of its creation and start with a text for the operator. Each ends the process with
        one line.
        """
        for warning in self.warnings:
            _log.warn("{text}", text=warning)
        from twisted.internet import reactor

        # Before any object keeps a reading of its time.
        use_monotonic_clock(reactor)
        errors: tuple[type[Exception], ...] = (ConfigError, *expected)
        process: ProcessConfig | None = getattr(self.settings, "process", None)
        try:
            affinity = None if process is None else CpuAffinity(process.cpu_affinity, global_reactor())
            made = service()
        except errors as error:
            raise SystemExit(f"{self.command}: {error}{self.settings.start_hint}") from None
        log: LogConfig | None = getattr(self.settings, "log", None)
        twistd = getattr(self, "parent", None)
        hint, load = self.settings.start_hint, self._load
        return DaemonService(self.command, made, expected, twistd, log, hint, affinity, load_settings=load)

    def _load(self) -> tuple[DaemonSettings, list[str]]:
        """Return the settings and warnings of the same files and options. Raises ConfigError."""
        return self.settings_class.load(
            self.settings.config_file, self.overrides, os.environ, namesrv_addr=self["namesrv-addr"]
        )
