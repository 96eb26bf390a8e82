"""Which core runs: the compiled one, or the sources it is compiled from.

No counterpart in Apache. The modules that run for every message are ordinary typed Python that mypyc also compiles, all into
one library (setup.py). Compiled modules are taken only when they belong to the sources beside them, so that edited source
never runs as it was before.
"""

import enum
import importlib.machinery
import importlib.util
import os
import sys
import zlib
from collections.abc import Sequence
from types import ModuleType

MODULES = (
    "rocketd.broker.incoming",
    "rocketd.common.java_hash",
    "rocketd.common.properties",
    "rocketd.remoting.frame",
    "rocketd.store.compose",
    "rocketd.store.index_entries",
    "rocketd.store.properties",
)
"""What is compiled. Everything else always runs as it stands."""

PURE = "ROCKETD_PURE"
"""Environment variable: 1 builds nothing, and takes no compiled module where there are some."""

DIGEST_FILE = f"core.{sys.implementation.cache_tag}.digest"
"""Says, beside the compiled modules, what they were compiled from."""

COMPILED_KIND = "compiled core"
PURE_KIND = "pure Python core"
STALE_KIND = "pure Python core: what is compiled is of other sources"

_directory = os.path.dirname(os.path.abspath(__file__))
_kind = PURE_KIND


def kind() -> str:
    """Say which core this process has: one of the three kinds."""
    return _kind


def wants_pure() -> bool:
    """Whether the environment asks for the pure core."""
    return os.environ.get(PURE, "") not in ("", "0")


def source_of(module: str) -> str:
    """Path of a module's source below the directory of the package, with slashes."""
    return "/".join(module.split(".")[1:]) + ".py"


def digest(directory: str = _directory) -> str:
    """Check sums of the sources of all compiled modules, found in a directory of the package. Raises OSError."""
    sums = []
    for module in MODULES:
        with open(os.path.join(directory, source_of(module)), "rb") as file:
            sums.append(f"{zlib.crc32(file.read()):08x}")
    return " ".join(sums)


class State(enum.Enum):
    """What there is to run."""

    SOURCES = "nothing is compiled"
    COMPILED = "all of the core is compiled, from these sources"
    UNWANTED = "the environment asks for the sources, though there are compiled modules"
    STALE = "there are compiled modules, but not all of them, or of other sources"


def examine(directory: str = _directory) -> State:
    """Find out what there is in a directory of the package. Raises OSError when a source is missing."""
    compiled = [module for module in MODULES if _is_compiled(directory, module)]
    if not compiled:
        return State.SOURCES
    if wants_pure():
        return State.UNWANTED
    belongs = len(compiled) == len(MODULES) and _built_from(directory) == digest(directory)
    return State.COMPILED if belongs else State.STALE


def choose() -> None:
    """Let the right core be imported; called once, before any of its modules is."""
    global _kind
    state = examine()
    if state is State.COMPILED:
        _kind = COMPILED_KIND
    elif state is not State.SOURCES:
        sys.meta_path.insert(0, SourcesFirst(_directory))
    if state is State.STALE:
        _kind = STALE_KIND


def _is_compiled(directory: str, module: str) -> bool:
    path = os.path.join(directory, source_of(module)).removesuffix(".py")
    return any(os.path.exists(path + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES)


def _built_from(directory: str) -> str:
    try:
        with open(os.path.join(directory, DIGEST_FILE), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


class SourcesFirst:
    """Finds the sources of the core's modules, where Python's own finder would prefer what is compiled."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As the import system asks for it."""
        if name not in MODULES:
            return None
        return importlib.util.spec_from_file_location(name, os.path.join(self._directory, source_of(name)))
