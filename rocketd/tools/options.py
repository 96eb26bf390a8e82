"""What the options of the console script's commands have in common.

Answers to MQAdminStartup's and the commands' option handling.
"""

import getopt
from collections.abc import Sequence

from twisted.python import usage

from rocketd.common.checks import ADDRESSES, is_address_list


class CommandOptions(usage.Options):
    """Options that may also stand behind the arguments, as users of other tools expect. ``--`` ends them."""

    def parseOptions(self, options: Sequence[str] | None = None) -> None:  # noqa: N802
        """Parse the arguments in any order. Raises UsageError."""
        try:
            given, arguments = getopt.gnu_getopt(list(options or ()), self.shortOpt, self.longOpt)
        except getopt.error as error:
            raise usage.UsageError(str(error)) from None
        super().parseOptions(
            [*(text for name, value in given for text in self._written(name, value)), "--", *arguments]
        )

    def _written(self, name: str, value: str) -> list[str]:
        if name.startswith("--"):
            return [f"{name}={value}" if name[2:] + "=" in self.longOpt else name]
        return [name, value] if name[1] + ":" in self.shortOpt else [name]


def name_server_list(text: str) -> list[str]:
    """Read addresses separated by semicolons. Raises ValueError when one is no ``host:port``."""
    if not is_address_list(text):
        raise ValueError(f"accepted is {ADDRESSES}")
    return [part.strip() for part in text.rstrip("; ").split(";")]


def positive(text: str) -> int:
    """Read a number from 1 on. Raises ValueError for anything else."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError("accepted is a number from 1 on")
    return int(text)
