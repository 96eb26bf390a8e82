"""What every rocketd process does around its service: tune the interpreter, fail in one line, and exit 0 on a signal.

Answers to the start-up and shutdown-hook half of Apache's NamesrvStartup and BrokerStartup.
"""

import atexit
import gc
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any

from twisted.application.service import IService, MultiService
from twisted.internet.defer import Deferred
from twisted.internet.error import ReactorNotRunning
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.reflect import qual

from rocketd.common.log_files import LogDirectoryError, LogFiles
from rocketd.common.log_settings import LogConfig
from rocketd.common.twistd_start import TwistdStart


class DaemonService(MultiService):
    """Runs one service as a process of its own: the root of what twistd starts.

    ``expected`` are the errors of a start whose text is fit to be shown; they end the process with status 1. ``twistd``
    are the options of the twistd that runs it; made with them, it must be made before twistd forks.
    """

    _log = Logger()

    def __init__(
        self,
        command: str,
        service: IService,
        expected: tuple[type[Exception], ...],
        twistd: Mapping[str, Any] | None = None,
        log: LogConfig | None = None,
    ) -> None:
        super().__init__()
        self._log_files = LogFiles(log) if log is not None and log.log_dir else None
        self._start = TwistdStart(twistd)
        self._command = command
        self._expected: tuple[type[Exception], ...] = (LogDirectoryError, *expected)
        self._service = service
        service.setServiceParent(self)

    def startService(self) -> None:
        """Start; an expected error becomes one line on standard error and in the log, and exit status 1.

        A service with a method ``when_serving`` may fail so later, too, by what the Deferred of that method fails with.
        """
        tune_interpreter()
        from twisted.internet import reactor

        exit_cleanly_on_signals(reactor)
        try:
            if self._log_files is not None:
                self._log_files.startService()
            super().startService()
        except self._expected as error:
            text = " ".join(str(error).split()) or qual(type(error))
            self._log.critical("{command} ends: {text}", command=self._command, text=text)
            raise self._start.failed(f"{self._command}: {text}") from None
        when_serving = getattr(self._service, "when_serving", None)
        if when_serving is None:
            self._start.succeeded()
        else:
            when_serving().addCallbacks(lambda _: self._start.succeeded(), self._fail_late, errbackArgs=(reactor,))

    def stopService(self) -> "Deferred[None]":
        """Stop the service, then close the log files."""

        def close(result: None) -> None:
            if self._log_files is not None and self._log_files.running:
                self._log_files.stopService()
            return result

        stopped: Deferred[None] = super().stopService()
        return stopped.addBoth(close)

    def _fail_late(self, failure: Failure, reactor: Any) -> None:
        """End the process with status 1: the service may not serve after all, which it found out after its start."""
        error = failure.value
        if failure.check(*self._expected):
            self._log.critical("{command} ends: {text}", command=self._command, text=str(error))
        else:
            self._log.failure("{command} ends", failure=failure, command=self._command)
        self._start.failed_late(f"{self._command}: {' '.join(str(error).split()) or qual(type(error))}")
        atexit.register(_exit_with_failure)
        reactor.stop()


def _exit_with_failure() -> None:
    """Exit with status 1 where twistd would with 0; called when all else is done."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def tune_interpreter() -> None:
    """Set what a server of many threads, objects and connections needs."""
    # What was made until now stays for good: collections need not look at it.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def exit_cleanly_on_signals(reactor: Any) -> None:
    """Let SIGTERM and SIGINT stop the reactor and the process exit 0: twistd's own handlers die of the signal.

    A signal that comes before the reactor runs stops it as soon as it does.
    """

    def stop() -> None:
        try:
            reactor.stop()
        except ReactorNotRunning:
            pass  # it is stopping since an earlier signal

    def handle(*_: object) -> None:
        reactor.callFromThread(stop)

    def install() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handle)

    install()
    reactor.callWhenRunning(install)  # once more: the reactor sets its own when it begins to run
