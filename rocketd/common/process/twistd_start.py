"""Reports a failed start to the starter of twistd, as a daemon or in the foreground.

Counterpart: the exit statuses of mqnamesrv and mqbroker. twistd's waiting parent learns only of exceptions (after a
SystemExit of the daemon it waits forever), cuts their text to 100 bytes and prints it in two lines. So the daemon
writes its line to the terminal itself, and the parent's text is dropped.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

_SHOWN = "the cause was shown"


class TwistdStart:
    """The start of one twistd process. Created before twistd forks, and given the result in the serving process.

    ``config`` has twistd's options. None stands for a foreground process without a pid file.
    """

    def __init__(self, config: Mapping[str, Any] | None) -> None:
        self._config = config or {}
        self._stderr = sys.__stderr__
        self._terminal: int | None = None
        if config is not None and not config["nodaemon"]:
            self._terminal = os.dup(2)  # the daemon's standard error becomes /dev/null
            sys.__stderr__ = _WaitingParent(sys.__stderr__)  # type: ignore[assignment, misc]

    def succeeded(self) -> None:
        """Release the terminal: the starter may wait until it is closed."""
        if self._terminal is not None:
            sys.__stderr__ = self._stderr  # type: ignore[misc]
            os.close(self._terminal)
            self._terminal = None

    def failed_late(self, line: str) -> None:
        """Print one line after twistd's parent has exited. twistd removes the pid file."""
        if self._terminal is None:
            # twistd has replaced sys.stderr by its log.
            print(line, file=sys.__stderr__, flush=True)
        else:
            os.write(self._terminal, os.fsencode(f"{line}\n"))
            self.succeeded()

    def failed(self, line: str) -> SystemExit:
        """Print one line, remove the pid file, report to the waiting parent. Return the exception to raise: status 1."""
        self.failed_late(line)
        pid_file, status_pipe = self._config.get("pidfile"), self._config.get("statusPipe")
        if pid_file:
            try:
                os.unlink(pid_file)
            except OSError:
                pass  # twistd would only log it; the reason of the failed start matters more
        if status_pipe is not None:
            os.write(status_pipe, f"1 {_SHOWN}".encode())
            os.close(status_pipe)
        return SystemExit(1)


class _WaitingParent:
    """Standard error of twistd's parent. Drops its text about a failure already shown by the daemon."""

    def __init__(self, stderr: TextIO | None) -> None:
        self._stderr = stderr

    def write(self, text: str) -> int:
        if self._stderr is not None and _SHOWN not in text:
            self._stderr.write(text)
            self._stderr.flush()
        return len(text)

    def flush(self) -> None:
        if self._stderr is not None:
            self._stderr.flush()
