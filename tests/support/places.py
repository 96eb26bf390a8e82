"""Directories of the project for tests: the repository and its recorded data."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""

GOLDEN = ROOT / "tests" / "golden"
"""Files and frames of Apache's servers and clients."""

FRAMES = GOLDEN / "frames"
"""Recorded frames, one JSON file for each client or server."""
