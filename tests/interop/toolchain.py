"""The interop ring's client programs: the needs of each, how it is built once, and how it is run.

A program is built into a directory of ``ROCKETD_INTEROP_CACHE`` (or the user's cache directory) named after a hash of
its sources and of how it is built, so that a change, and only a change, builds it anew.
"""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.quick_java import COMPILER, read_archive, write_archive

HERE = Path(__file__).resolve().parent
BUILD_LIMIT = 300.0  # seconds, with cold registries' caches
RUN_LIMIT = 240.0

_NOT_SOURCES = {"node_modules", "target", "__pycache__"}


class BuildError(RuntimeError):
    """A program could not be built; the message is the output of the tool."""


class ClientError(AssertionError):
    """A program ended with another status than 0, or not in its time."""


@dataclass(frozen=True)
class Run:
    """The output of a program: the JSON objects of its standard output, and its standard error."""

    lines: list[dict[str, Any]]
    stderr: str


class Program:
    """One client program; subclasses know the needs of their language."""

    name: str
    folder: str
    tools: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """Return the name of a tool that this machine lacks for it, or None."""
        lacking = [tool for tool in self.tools if shutil.which(tool) is None]
        return f"the {self.name} client needs {', '.join(lacking)} in PATH" if lacking else None

    def build(self, sources: Path, built: Path) -> None:
        """Fill the empty directory ``built``; BuildError when that fails."""
        raise NotImplementedError

    def command(self, built: Path, home: Path, jvm: Sequence[str]) -> list[str]:
        """The command before the arguments that all programs share; ``jvm`` options are for Java alone."""
        raise NotImplementedError

    @property
    def sources(self) -> Path:
        return HERE / self.folder

    def built(self) -> Path:
        """The directory of the built program, built now unless it is there."""
        target = cache_dir() / f"{self.name}-{self._key()}"
        complete = target / ".complete"
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                shutil.rmtree(target, ignore_errors=True)
                target.mkdir()
                self.build(self.sources, target)
                complete.touch()
        return target

    def _key(self) -> str:
        digest = hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode() + platform.machine().encode())
        for path in sorted(self.sources.rglob("*")):
            relative = path.relative_to(self.sources)
            if path.is_file() and not _NOT_SOURCES.intersection(relative.parts):
                digest.update(f"{relative}\0{path.stat().st_size}\0".encode() + path.read_bytes())
        return digest.hexdigest()[:16]


class JavaProgram(Program):
    name = "java"
    folder = "java"
    tools = ("java", "javac", "jar", "mvn")

    def build(self, sources: Path, built: Path) -> None:
        _tool(
            [
                *("mvn", "-q", "-B", "-f", str(sources / "pom.xml"), f"-Dbuild.dir={built}"),
                *("compile", "dependency:copy-dependencies", "-DincludeScope=runtime"),
                f"-DoutputDirectory={built}/lib",
            ],
            sources,
        )
        # An archive has no classes of directories.
        _tool(["jar", "--create", "--file", str(built / "client.jar"), "-C", str(built / "classes"), "."], built)
        # It ends with an error, for lack of a name server; only the classes that it loads matter.
        archive = built / "classes.jsa"
        command = [
            "consume",
            "--namesrv",
            "127.0.0.1:1",
            "--topic",
            "T",
            "--group",
            "G",
            "--count",
            "1",
            "--timeout",
            "1",
        ]
        archived = [*self._java(built, built, write_archive(archive)), *command]
        try:
            subprocess.run(archived, cwd=built, stdin=subprocess.DEVNULL, capture_output=True, timeout=BUILD_LIMIT)
        except subprocess.TimeoutExpired:
            archive.unlink(missing_ok=True)

    def command(self, built: Path, home: Path, jvm: Sequence[str]) -> list[str]:
        return self._java(built, home, (*read_archive(built / "classes.jsa"), *jvm))

    def _java(self, built: Path, home: Path, jvm: Sequence[str]) -> list[str]:
        path = f"{built}/client.jar:{built}/lib/*"
        return ["java", *COMPILER, f"-Duser.home={home}", *jvm, "-cp", path, "rocketd.interop.Main"]


class GoProgram(Program):
    name = "go"
    folder = "go"
    tools = ("go",)

    def build(self, sources: Path, built: Path) -> None:
        _tool(["go", "build", "-mod=readonly", "-o", str(built / "interop"), "."], sources)

    def command(self, built: Path, home: Path, jvm: Sequence[str]) -> list[str]:
        return [str(built / "interop")]


class NodeProgram(Program):
    name = "node"
    folder = "node"
    tools = ("node", "npm")

    def build(self, sources: Path, built: Path) -> None:
        for file in ("package.json", "package-lock.json", "client.js"):
            shutil.copy(sources / file, built)
        _tool(["npm", "ci", "--no-audit", "--no-fund"], built)

    def command(self, built: Path, home: Path, jvm: Sequence[str]) -> list[str]:
        return ["node", str(built / "client.js")]


class CppProgram(Program):
    """The C++ client from its wheel, in a separate virtual environment."""

    name = "cpp"
    folder = "cpp_python"

    def missing(self) -> str | None:
        if sys.platform != "linux" or platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc":
            return "the cpp client's wheel is for Linux on x86_64 with glibc"
        lacking = [module for module in ("venv", "ensurepip") if find_spec(module) is None]
        return f"the cpp client needs Python's {', '.join(lacking)}" if lacking else None

    def build(self, sources: Path, built: Path) -> None:
        _tool([sys.executable, "-m", "venv", str(built / "venv")], built)
        requirements = str(sources / "requirements.txt")
        _tool([str(built / "venv/bin/python"), "-m", "pip", "install", "-q", "-r", requirements], built)
        shutil.copy(sources / "client.py", built)

    def command(self, built: Path, home: Path, jvm: Sequence[str]) -> list[str]:
        return [str(built / "venv/bin/python"), str(built / "client.py")]


PROGRAMS: dict[str, Program] = {
    program.name: program for program in (JavaProgram(), GoProgram(), NodeProgram(), CppProgram())
}


def cache_dir() -> Path:
    """Return the directory in which built programs are kept between runs."""
    given = os.environ.get("ROCKETD_INTEROP_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketd" / "interop"


def run_client(name: str, *arguments: object, home: Path, jvm: Sequence[str] = (), limit: float = RUN_LIMIT) -> Run:
    """Run a program (built first if need be) and return its output.

    ``home`` is its working and home directory, with its logs. ClientError if it is not done in ``limit`` seconds or
    ends with another status than 0.
    """
    program = PROGRAMS[name]
    command = [*program.command(program.built(), home, jvm), *map(str, arguments)]
    # A virtual environment or path of this process's own is nothing for another Python.
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["HOME"] = str(home)
    try:
        done = subprocess.run(
            command, cwd=home, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit
        )
    except subprocess.TimeoutExpired as expired:
        raise ClientError(
            _complaint(name, arguments, f"not done in {limit:g} s", expired.output, expired.stderr)
        ) from None
    if done.returncode != 0:
        raise ClientError(_complaint(name, arguments, f"exit status {done.returncode}", done.stdout, done.stderr))
    return Run([json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode(errors="replace"))


def _complaint(name: str, arguments: Sequence[object], what: str, stdout: bytes | None, stderr: bytes | None) -> str:
    printed = (stdout or b"").decode(errors="replace").splitlines()
    errors = (stderr or b"").decode(errors="replace").splitlines()
    said = "\n".join([*printed[-3:], *errors[-40:]])
    return f"{name} {' '.join(map(str, arguments))}: {what} after {len(printed)} lines\n{said}"


def _tool(command: Sequence[str], cwd: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_LIMIT
        )
    except subprocess.TimeoutExpired as expired:
        raise BuildError(f"{' '.join(command)}: not done in {BUILD_LIMIT:g} s") from expired
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
