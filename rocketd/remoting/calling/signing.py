"""The hook that signs the requests of a RemotingClient.

Counterpart: `AclClientRPCHook` (Apache). The signer is an argument.
"""

from collections.abc import Mapping
from typing import Protocol

from zope.interface import implementer

from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.wire.command import RemotingCommand


class Signer(Protocol):
    """An object that can sign."""

    def sign(self, fields: Mapping[str, str] | None, body: bytes | None) -> dict[str, str]:
        """Return the fields of a request including its signature."""


@implementer(IRPCHook)
class SigningHook:
    """Signs each request before it is sent. Reactor thread."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Sign a request. A repeated request is signed again."""
        request.ext_fields = self._signer.sign(request.ext_fields, request.body)

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Do nothing."""
