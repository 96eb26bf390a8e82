"""``rocketd try``: run both servers in two processes, send and consume a message, and remove everything."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.output import show

_TOPIC, _BODY = "Hello", "it works"
_CONSUME_SECONDS = 30
_STOP_SECONDS = 30.0
_LAST_LINE = "stop "
"""Begin of the line that `rocketd up` prints last, when both servers are ready."""


@command("try")
def try_command() -> int:
    """Start both servers on free ports, send a message, consume and print it, and stop.

    All files are in a temporary directory, which is removed at the end.
    """
    with TemporaryDirectory(prefix="rocketd-try-") as data, _servers(data) as address:
        _run("produce", "--namesrv", address, _TOPIC, _BODY)
        _run("consume", "--namesrv", address, _TOPIC, "--count", "1", "--timeout", str(_CONSUME_SECONDS))
    return 0


@contextmanager
def _servers(data: str) -> Iterator[str]:
    """Run ``rocketd up`` and yield the name server's address. Raises CommandError if it ends before it is ready."""
    words = [*_rocketd("up"), "--data", data, "--namesrv-port", "0", "--broker-port", "0", "--console", "off"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = ""
            for line in process.stdout:
                if line.startswith(_LAST_LINE):
                    break
                if line.startswith("name server"):
                    address = line.split()[-1]
                if not line.startswith("try "):
                    show(line.rstrip())
            else:
                raise CommandError(f"the servers ended with status {process.wait()} before they were ready")
            yield address
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _run(*words: str) -> None:
    """Show a command and run it. Raises CommandError if it fails; its own message is on standard error."""
    show("$ rocketd " + shlex.join(words))
    status = subprocess.run([*_rocketd(words[0]), *words[1:]], check=False).returncode
    if status:
        raise CommandError(f"rocketd {words[0]} ended with status {status}")


def _rocketd(name: str) -> list[str]:
    return [sys.executable, "-m", "rocketd", name]
