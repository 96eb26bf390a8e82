"""Packs this package for a cluster: one zip with the sources of rocketd, which Spark copies to each executor.

NumPy, PyArrow and PySpark have compiled parts and are not shipped: they have to be there.
"""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import rocketd
from rocketd.spark.errors import SparkError
from rocketd.spark.sessions.java import cache_directory

PACKAGES = ("rocketd", "pyspark_rocketd")
_SUFFIXES = (".py", ".properties")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def package_zip(directory: str | None = None, root: Path | None = None) -> str:
    """Path of a zip with the packages of `root`, which is where we are; it is made in `directory`, the cache.

    The same sources give the same name and the same bytes. Raises SparkError where there are no sources.
    """
    root = Path(rocketd.__file__).parent.parent if root is None else root
    if root.is_file():
        # We run from such a zip ourselves: in the driver of a cluster, say.
        return str(root)
    sources = sorted(_sources(root))
    digest = hashlib.sha256()
    for name, path in sources:
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    directory = cache_directory(os.environ) if directory is None else directory
    target = os.path.join(directory, f"rocketd-{digest.hexdigest()[:16]}.zip")
    if not os.path.exists(target):
        _write(sources, target)
    return target


def _sources(root: Path) -> Iterator[tuple[str, Path]]:
    found = False
    for package in PACKAGES:
        for path in (root / package).rglob("*"):
            if path.suffix in _SUFFIXES and path.is_file():
                found = True
                yield path.relative_to(root).as_posix(), path
    if not found:
        raise SparkError(f"there are no sources of rocketd in {root}, so they cannot be shipped to a cluster")


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
