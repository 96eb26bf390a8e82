"""Packs this package for a cluster: one zip with the sources of rocketd and click, copied by Spark to each executor.

NumPy, PyArrow and PySpark have compiled parts and are not shipped; they must be installed there.
"""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import click

import rocketd
from rocketd.spark.errors import SparkError
from rocketd.spark.sessions.java import cache_directory

PACKAGES = ("rocketd", "pyspark_rocketd")
_SUFFIXES = (".py", ".properties")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def package_zip(directory: str | None = None, root: Path | None = None) -> str:
    """Return the path of a zip with our packages and click, which the jobs import. The zip is made in the cache.

    Tests pass another `directory`, and a `root` with only some packages. The same sources give the same name and the
    same bytes. Raises SparkError without sources.
    """
    here = Path(rocketd.__file__).parent.parent
    if root is None and here.is_file():
        # This process runs from such a zip, for example in the driver of a cluster.
        return str(here)
    sources = sorted(_sources(here if root is None else root))
    if root is None:
        sources += sorted(_files(Path(click.__file__).parent.parent, "click"))
    digest = hashlib.sha256()
    for name, path in sources:
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    directory = cache_directory(os.environ) if directory is None else directory
    target = os.path.join(directory, f"rocketd-{digest.hexdigest()[:16]}.zip")
    if not os.path.exists(target):
        _write(sources, target)
    return target


def _sources(root: Path) -> list[tuple[str, Path]]:
    found = [each for package in PACKAGES for each in _files(root, package)]
    if not found:
        raise SparkError(f"{root} has no sources of rocketd to ship to a cluster")
    return found


def _files(root: Path, package: str) -> Iterator[tuple[str, Path]]:
    for path in (root / package).rglob("*"):
        if path.suffix in _SUFFIXES and path.is_file():
            yield path.relative_to(root).as_posix(), path


def _write(sources: list[tuple[str, Path]], target: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in sources:
                info = zipfile.ZipInfo(name, _EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o644 << 16
                archive.writestr(info, path.read_bytes())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
