"""Chooses between the compiled core and the sources from which it is compiled.

The modules that run for every message are ordinary typed Python, which mypyc also compiles into one library (setup.py). The
compiled modules are used only if they match the sources beside them, so that an edit of a source always takes effect.
"""

import enum
import importlib.machinery
import os
import sys
import zlib
from collections.abc import Sequence
from types import ModuleType

MODULES = (
    "rocketd.broker.send.message_builder",
    "rocketd.common.java_hash",
    "rocketd.common.message_properties",
    "rocketd.remoting.wire.frame",
    "rocketd.store.format.compose",
    "rocketd.store.index.entries",
    "rocketd.store.queue.record_run",
    "rocketd.store.format.properties",
    "rocketd.store.queue.request_groups",
)
"""The compiled modules. All others always run from source."""

PURE = "ROCKETD_PURE"
"""Environment variable: 1 skips the compilation, and ignores modules already compiled."""

DIGEST_FILE = f"core.{sys.implementation.cache_tag}.digest"
"""File beside the compiled modules with the digest of the sources from which they were compiled."""

COMPILED_KIND = "compiled core"
PURE_KIND = "pure Python core"
STALE_KIND = "pure Python core: the compiled modules belong to other sources"

_directory = os.path.dirname(os.path.abspath(__file__))
_kind = PURE_KIND


def kind() -> str:
    """Return the kind of this process's core, one of the three above."""
    return _kind


def wants_pure() -> bool:
    """Return whether the environment asks for the pure core."""
    return os.environ.get(PURE, "") not in ("", "0")


def source_of(module: str) -> str:
    """Return the path of a module's source below the directory of the package, with slashes."""
    return "/".join(module.split(".")[1:]) + ".py"


def digest(directory: str = _directory) -> str:
    """Return checksums of the sources of all compiled modules in a package directory. Raises OSError."""
    sums = []
    for module in MODULES:
        with open(os.path.join(directory, source_of(module)), "rb") as file:
            sums.append(f"{zlib.crc32(file.read()):08x}")
    return " ".join(sums)


class State(enum.Enum):
    """The state of the compiled modules in a package directory."""

    SOURCES = "nothing is compiled"
    COMPILED = "all of the core is compiled, from these sources"
    UNWANTED = "the environment asks for the sources, though there are compiled modules"
    STALE = "there are compiled modules, but not all of them, or of other sources"


def examine(directory: str = _directory) -> State:
    """Return the state of a package directory. Raises OSError if a source is missing."""
    compiled = [module for module in MODULES if _is_compiled(directory, module)]
    if not compiled:
        return State.SOURCES
    if wants_pure():
        return State.UNWANTED
    belongs = len(compiled) == len(MODULES) and _built_from(directory) == digest(directory)
    return State.COMPILED if belongs else State.STALE


def choose() -> None:
    """Make imports find the right core. Call it once, before any of its modules is imported."""
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
    """Finds the sources of the core's modules; Python's default finder would prefer the compiled ones."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a core module's source, None for other modules (import protocol)."""
        if name not in MODULES:
            return None
        import importlib.util  # most processes have no stale module to avoid

        return importlib.util.spec_from_file_location(name, os.path.join(self._directory, source_of(name)))
