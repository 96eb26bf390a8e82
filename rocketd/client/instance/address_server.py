"""The name servers of a client whose config has a ``name_server_url``.

Counterpart: `MQClientAPIImpl.fetchNameServerAddr` (Apache). Unlike there, a caller that needs a name server while none is
known has the page asked for at once, and is told the fault.
"""

from rocketd.client.errors import NoNameServerError
from rocketd.remoting.address_server import AddressServer, AddressServerError


class ClientAddressServer(AddressServer):
    """An address server whose faults are those of a client."""

    async def fetch(self) -> None:
        """Ask once for all callers that wait at a time. Raises NoNameServerError."""
        try:
            await self.ask()
        except AddressServerError as error:
            raise NoNameServerError(
                f"no name server is known: {error}; correct name_server_url, or name the servers themselves"
            ) from error
