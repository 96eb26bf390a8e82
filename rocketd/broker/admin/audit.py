"""The last changes by administrators: GET_ADMIN_CHANGES (30004), a request of rocketd."""

from zope.interface import implementer

from rocketd.broker.admin.parts import AdminParts
from rocketd.remoting.interfaces import IRequestContext, IRequestProcessor
from rocketd.remoting.wire.command import RemotingCommand


@implementer(IRequestProcessor)
class AuditProcessor:
    """Answers administrators. ``process`` belongs to the admin pool's thread."""

    def __init__(self, broker: AdminParts) -> None:
        self._broker = broker

    def process(self, request: RemotingCommand, context: IRequestContext) -> RemotingCommand:
        """Handle one request; see IRequestProcessor."""
        return self._broker.audit.answer(request)
