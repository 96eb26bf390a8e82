"""Tells whether files below a directory are the same as others."""

import hashlib
from pathlib import Path


def files(root, name):
    base = Path(root, name)
    return {
        str(path.relative_to(base)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(base.rglob("*"))
        if path.is_file()
    }
