"""Changes by administrators: the lines of a server's audit file, and the answer to GET_ADMIN_CHANGES (30004)."""

from typing import Any, Final

import msgspec

from rocketd.remoting.bodies.tables import Body

MAX_CHANGES: Final = 1000
"""Changes in one answer."""


class AdminChange(msgspec.Struct):
    """One change. ``before`` and ``after`` are values of JSON; null stands for a thing that did not or does not exist."""

    time: str
    """UTC as of ISO 8601, with milliseconds."""
    address: str
    """Host and port of the connection."""
    account: str | None = None
    """Access key that signed the request; null if the server did not check a signature."""
    action: str = ""
    subject: str = ""
    before: Any = None
    after: Any = None


class AdminChanges(Body):
    """The last changes, the oldest first."""

    changes: list[AdminChange] = []
