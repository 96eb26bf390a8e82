"""Sections of a guide that show files and shell sessions: the files are written, the commands run, their output compared.

A file is a block of Python whose first line is a comment with its name. A command that ends with ``&`` runs until the
session ends. ``curl`` is done here, and repeated until its output is the shown one.
"""

import http.client
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from tests.support.ports import free_port
from tests.support.process import ServerProcess

PROGRAMS = {
    "python": [],
    "django-admin": ["-m", "django"],
    "gunicorn": ["-m", "gunicorn"],
    "uvicorn": ["-m", "uvicorn"],
    "celery": ["-m", "celery"],
}
"""Commands of sessions, and the arguments of Python that run them."""

_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.py)(, at its end)?\n")
_PAUSE = 0.1


def section(page: Path, heading: str) -> str:
    """Return the text below a heading of the second level."""
    return re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)[1]


def printed_programs(page: Path) -> list[tuple[str, str]]:
    """Return the programs of a guide that are followed by their output, each with it."""
    return re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


class Session:
    """The processes of a section, in a directory. Close it in the end."""

    def __init__(self, directory: Path, environment: dict[str, str], limit: float) -> None:
        self.directory = directory
        self.limit = limit
        self.port = free_port()
        self.environment = {
            **environment,
            "HOME": str(directory),
            "PYTHONUNBUFFERED": "1",
            "GUNICORN_CMD_ARGS": f"--bind 127.0.0.1:{self.port} --worker-tmp-dir {directory}",
            "UVICORN_PORT": str(self.port),
        }
        self.running: list[ServerProcess] = []

    def run(self, text: str) -> None:
        """Do all that the text shows, in its order."""
        for kind, block in _BLOCK.findall(text):
            if kind == "python":
                self.write(block)
            else:
                for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                    self.do(command, output)

    def write(self, block: str) -> None:
        """Write a file, or the end of one."""
        name, at_its_end = _FILE.match(block).groups()
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if at_its_end else "w") as file:
            file.write(block)

    def do(self, command: str, output: str) -> None:
        """Run a command, and compare its output if one is shown."""
        name, *arguments = shlex.split(command.removesuffix(" &"))
        if name == "curl":
            self.curl(arguments, output)
            return
        whole = [sys.executable, *PROGRAMS[name], *arguments]
        if command.endswith(" &"):
            log = self.directory / f"{len(self.running)}.log"
            self.running.append(ServerProcess(command, whole, log, self.directory, self.environment))
            return
        ended = subprocess.run(
            whole,
            cwd=self.directory,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.limit,
            check=False,
        )
        assert ended.returncode == 0, (command, ended.stdout, ended.stderr)
        if output:
            assert ended.stdout == output, (command, ended.stderr)

    def curl(self, arguments: list[str], output: str) -> None:
        """Make a request. While nothing listens, and if the answer to GET is another one, make it again."""
        method, address = ("POST", arguments[2]) if arguments[:2] == ["-X", "POST"] else ("GET", arguments[0])
        path = address.removeprefix("127.0.0.1:8000")
        deadline = time.monotonic() + self.limit
        while True:
            answer = self.request(method, path)
            if answer is not None and (answer == output.rstrip("\n") or method == "POST"):
                break
            assert time.monotonic() < deadline, (path, answer, *(process.tail() for process in self.running))
            for process in self.running:
                assert process.exit_code is None, process.tail()
            time.sleep(_PAUSE)
        assert answer == output.rstrip("\n"), (path, *(process.tail() for process in self.running))

    def request(self, method: str, path: str) -> str | None:
        """Return the body of an answer; None if nothing listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.limit)
        try:
            connection.request(method, path)
            return connection.getresponse().read().decode().rstrip("\n")
        except ConnectionError:
            return None
        finally:
            connection.close()

    def close(self) -> None:
        """Stop the processes. Each must end in time."""
        for process in self.running:
            process.stop(self.limit)
