"""The complaints of a program on standard error. Lines that a busy machine causes are not complaints."""

import re

_OF_BUSY_MACHINE = re.compile(
    r"the flush of \S+ took \d+ ms"
    r"|appending \d+ messages to the log took \d+ ms"
    r"|a put took \d+ ms"
    r"|^Executing <.*> took \d+\.\d{3} seconds$"  # asyncio in development mode, about callbacks of 100 ms
)


def complaints(stderr: str) -> list[str]:
    """Return the lines, except those that only say that the machine was slow."""
    return [line for line in stderr.splitlines() if not _OF_BUSY_MACHINE.search(line)]
