"""The line printed by ``--version``."""

import rocketd
from rocketd import core


def version_text() -> str:
    """Return the version and the running core."""
    return f"rocketd {rocketd.__version__} ({core.kind()})"
