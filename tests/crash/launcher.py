"""Runs a broker as twistd does, on a disk that records the files a power cut would leave.

Usage: launcher.py STORE SHADOW CONFIG. The broker is the real one, made by the real command, with another file system.
"""

import sys

from twisted.scripts.twistd import run

from rocketd.broker import service
from tests.crash.recording import RecordingFileSystem


def main() -> None:
    """Record first, then run."""
    store, shadow, config = sys.argv[1:]
    file_system = RecordingFileSystem(store, shadow)
    service.RealFileSystem = lambda: file_system  # type: ignore[assignment,misc]
    sys.argv = ["twistd", "-n", "--pidfile", "", "rocketd-broker", "-c", config]
    run()


if __name__ == "__main__":
    main()
