"""The request for the changes that administrators made at a server.

Counterpart: none. Pure functions.
"""

from rocketd.protocol.typed_request import TypedRequest
from rocketd.remoting.bodies.audit import AdminChange, AdminChanges
from rocketd.remoting.headers.admin import AdminChangesRequestHeader
from rocketd.remoting.wire.codes import RequestCode
from rocketd.remoting.wire.command import RemotingCommand


def admin_changes(count: int) -> TypedRequest[list[AdminChange]]:
    """Ask a rocketd server for the last ``count`` changes, the oldest first."""
    return TypedRequest(RequestCode.GET_ADMIN_CHANGES, _changes, AdminChangesRequestHeader(count))


def _changes(answer: RemotingCommand) -> list[AdminChange]:
    return AdminChanges.decode(answer.body).changes
