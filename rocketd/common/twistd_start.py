"""How a start that fails is told to who started twistd, as a daemon or in the foreground.

Answers to the exit statuses of mqnamesrv and mqbroker. twistd's waiting parent hears of exceptions only (a SystemExit of
the daemon leaves it waiting for ever), cuts what it hears to 100 bytes and shows it in two lines. So the daemon writes its
line to the terminal itself, and the parent's text is dropped.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

_SHOWN = "the cause was shown"


class TwistdStart:
    """The start of one twistd process: made before twistd forks, told of the outcome in the process that serves.

    ``config`` holds twistd's options; None stands for a process in the foreground that has no pid file.
    """

    def __init__(self, config: Mapping[str, Any] | None) -> None:
        self._config = config or {}
        self._stderr = sys.__stderr__
        self._terminal: int | None = None
        if config is not None and not config["nodaemon"]:
            self._terminal = os.dup(2)  # the daemon's own becomes /dev/null
            sys.__stderr__ = _WaitingParent(sys.__stderr__)  # type: ignore[assignment, misc]

    def succeeded(self) -> None:
        """Let go of the terminal: who started the daemon may wait until nobody holds it."""
        if self._terminal is not None:
            sys.__stderr__ = self._stderr  # type: ignore[misc]
            os.close(self._terminal)
            self._terminal = None

    def failed_late(self, line: str) -> None:
        """Show one line, when twistd's parent has left already; twistd removes the pid file."""
        if self._terminal is None:
            # twistd has put its log in the place of sys.stderr.
            print(line, file=sys.__stderr__, flush=True)
        else:
            os.write(self._terminal, os.fsencode(f"{line}\n"))
            self.succeeded()

    def failed(self, line: str) -> SystemExit:
        """Show one line, remove the pid file, report to the waiting parent; return what is to be raised: status 1."""
        self.failed_late(line)
        pid_file, status_pipe = self._config.get("pidfile"), self._config.get("statusPipe")
        if pid_file:
            try:
                os.unlink(pid_file)
            except OSError:
                pass  # twistd would only log it, and why the start failed is of more use
        if status_pipe is not None:
            os.write(status_pipe, f"1 {_SHOWN}".encode())
            os.close(status_pipe)
        return SystemExit(1)


class _WaitingParent:
    """The standard error of twistd's parent: drops what it says of a failure that the daemon has shown itself."""

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
