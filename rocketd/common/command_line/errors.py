"""The errors that end a command with one line and an exit status."""


class CommandError(Exception):
    """The reason why a command failed, in one line, and its exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class OutputClosedError(Exception):
    """The reader of standard output has gone. The command ends with status 1 and without a message."""
