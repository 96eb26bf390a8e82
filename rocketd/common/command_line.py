"""What all our command lines say alike about themselves.

Answers to the help and version options of Apache's scripts.
"""

import os
import sys

from twisted.python import usage

import rocketd
from rocketd import core


def give_up_output() -> None:
    """Let nothing that is still to be written to standard output fail once more, when the interpreter ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


class CommandLine(usage.Options):
    """Options whose help begins with their own ``synopsis``, where they have one, and whose version is ours."""

    longdesc = ""

    def getSynopsis(self) -> str:  # noqa: N802 - the name is Twisted's
        """Say how the command is called; Twisted would put that of the command above in front."""
        own: str | None = getattr(self, "synopsis", None)
        return own if own is not None else str(super().getSynopsis())

    def opt_version(self) -> None:
        """Print the version and which core runs, and exit."""
        print(f"rocketd {rocketd.__version__} ({core.kind()})")
        raise SystemExit(0)
