"""The hook that signs the requests of a RemotingClient.

Answers to Apache's AclClientRPCHook; how a request is signed, it is told.
"""

from collections.abc import Mapping
from typing import Protocol

from zope.interface import implementer

from rocketd.remoting.command import RemotingCommand
from rocketd.remoting.interfaces import IRPCHook


class Signer(Protocol):
    """Who can sign."""

    def sign(self, fields: Mapping[str, str] | None, body: bytes | None) -> dict[str, str]:
        """Return the fields of a request with those of its signature."""


@implementer(IRPCHook)
class SigningHook:
    """Signs each request that is sent. Reactor thread."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Sign a request; one that is sent again is signed anew."""
        request.ext_fields = self._signer.sign(request.ext_fields, request.body)

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Do nothing."""
