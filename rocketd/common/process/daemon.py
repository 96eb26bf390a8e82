"""Common part of every rocketd process: tune the interpreter, fail with one line, exit 0 on a signal, reload.

Counterpart: the start-up and shutdown-hook half of `NamesrvStartup` and `BrokerStartup` (Apache).
"""

import atexit
import gc
import os
import resource
import sys
from collections.abc import Callable, Mapping
from typing import Any

from twisted.application.service import IService, MultiService
from twisted.internet.defer import Deferred
from twisted.logger import Logger, globalLogPublisher
from twisted.python.failure import Failure
from twisted.python.logfile import BaseLogFile
from twisted.python.reflect import qual

from rocketd.common.event_loop.reactor import IReactor, global_reactor
from rocketd.common.logs.files import LogDirectoryError, LogFiles
from rocketd.common.logs.settings import LogConfig
from rocketd.common.process.cpu_affinity import CpuAffinity
from rocketd.common.process.exit_signals import exit_cleanly_on_signals
from rocketd.common.process.service_manager import ServiceManager
from rocketd.common.process.twistd_start import TwistdStart


class DaemonService(MultiService):
    """Runs one service as a process: the root of the service tree started by twistd.

    - ``expected`` are start errors with a text for the operator. They end the process with status 1.
    - ``twistd`` are the options of the running twistd. With them, this must be created before twistd forks.
    - ``hint`` is added to the text of each expected error.
    - ``load_settings`` reads the settings again. On SIGHUP it is passed to the method ``reload`` of the service.

    A service manager such as systemd is told about the start, reloads and the stop. ``systemctl status`` shows the text of
    the service's attribute ``status_text``, if it has one.
    """

    _log = Logger()

    def __init__(
        self,
        command: str,
        service: IService,
        expected: tuple[type[Exception], ...],
        twistd: Mapping[str, Any] | None = None,
        log: LogConfig | None = None,
        hint: str = "",
        affinity: CpuAffinity | None = None,
        load_settings: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__()
        if affinity is not None:
            affinity.setServiceParent(self)  # the first to start: threads inherit the core of their creator
        self._log_files = LogFiles(log) if log is not None and log.log_dir else None
        self._start = TwistdStart(twistd)
        self._command = command
        self._hint = hint
        self._load_settings = load_settings
        self._expected: tuple[type[Exception], ...] = (LogDirectoryError, *expected)
        self._service = service
        self._manager: ServiceManager | None = None
        service.setServiceParent(self)

    def startService(self) -> None:
        """Start. An expected error becomes one line on standard error and in the log, and exit status 1.

        A service with a method ``when_serving`` may also fail later, through the Deferred of that method.
        """
        tune_interpreter()
        reactor = global_reactor()
        exit_cleanly_on_signals(reactor, hang_up=self._hang_up)
        self._manager = ServiceManager(reactor, os.environ)
        try:
            if self._log_files is not None:
                self._log_files.startService()
            super().startService()
        except self._expected as error:
            text = _line(error) + self._hint
            self._log.critical("{command} ends: {text}", command=self._command, text=text)
            raise self._start.failed(f"{self._command}: {text}") from None
        when_serving = getattr(self._service, "when_serving", None)
        if when_serving is None:
            self._started(None)
        else:
            when_serving().addCallbacks(self._started, self._fail_late, errbackArgs=(reactor,))

    def _started(self, _: object) -> None:
        self._start.succeeded()
        if self._manager is not None:
            self._manager.ready(getattr(self._service, "status_text", f"{self._command} serves"))

    def stopService(self) -> "Deferred[None]":
        """Stop the service, then close the log files."""
        manager = self._manager
        if manager is not None:
            manager.stopping()

        def close(result: None) -> None:
            if manager is not None:
                manager.ended()
            if self._log_files is not None and self._log_files.running:
                self._log_files.stopService()
            return result

        stopped: Deferred[None] = super().stopService()
        return stopped.addBoth(close)

    def _hang_up(self) -> None:
        """Reopen the log files, and have the service reload its files."""
        if self._manager is not None:
            self._manager.reloading()
        reopen_twistd_log()
        if self._log_files is not None:
            self._log_files.reopen()
        self._log.info("SIGHUP: the log files are opened again; settings and accounts are read again")
        reload = getattr(self._service, "reload", None)
        if reload is not None and self._service.running:
            reload(self._load_settings)
        if self._manager is not None:
            self._manager.reloaded()

    def _fail_late(self, failure: Failure, reactor: IReactor) -> None:
        """End the process with status 1: the service found out after its start that it cannot serve."""
        text = _line(failure.value)
        if failure.check(*self._expected):
            text += self._hint
            self._log.critical("{command} ends: {text}", command=self._command, text=text)
        else:
            self._log.failure("{command} ends", failure=failure, command=self._command)
        self._start.failed_late(f"{self._command}: {text}")
        atexit.register(_exit_with_failure)
        reactor.stop()


def reopen_twistd_log() -> None:
    """Open the file of twistd's option ``--logfile`` again, after another program has renamed it."""
    for observer in getattr(globalLogPublisher, "_observers", ()):
        file = getattr(observer, "_outFile", None)
        if isinstance(file, BaseLogFile):
            file.reopen()


def _line(error: BaseException | None) -> str:
    """Return the text of an error on one line, or the name of its class."""
    return " ".join(str(error).split()) or qual(type(error))


def _exit_with_failure() -> None:
    """Exit with status 1 instead of twistd's 0. Called at the very end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def tune_interpreter() -> None:
    """Set parameters for a server with many threads, objects and connections."""
    # Existing objects stay for good: exclude them from collections.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
