"""Stores written by Apache's broker 4.9.7, kept as archives."""

import os
import tarfile

from tests.support.places import GOLDEN

STORES = GOLDEN / "stores"


def unpack_store(name: str, directory: str | os.PathLike[str]) -> None:
    """Unpack a store below a directory, as a directory of its name."""
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        # Python 3.11.2, which Debian 12 has, knows no filters. The archives are the project's own.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)
