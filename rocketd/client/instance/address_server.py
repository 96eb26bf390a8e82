"""The address server of a client: its name servers come from ``name_server_url``.

Counterpart: `MQClientAPIImpl.fetchNameServerAddr` (Apache). Unlike Apache, a caller that needs a name server while none is
known has the page fetched at once, and gets the error.
"""

from rocketd.client.errors import NoNameServerError
from rocketd.remoting.calling.address_server import AddressServer, AddressServerError


class ClientAddressServer(AddressServer):
    """An address server that raises the errors of a client."""

    async def fetch(self) -> None:
        """Fetch the page once for all waiting callers. Raises NoNameServerError."""
        try:
            await self.ask()
        except AddressServerError as error:
            raise NoNameServerError(
                f"no name server is known: {error}; correct name_server_url, or name the servers themselves"
            ) from error
