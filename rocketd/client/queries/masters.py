"""The masters of brokers, and changes that are sent to all of them.

Reactor thread. A broker without a registered master counts as failed, with BrokerUnreachableError.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any

from rocketd.client.errors import RocketMQError, no_master
from rocketd.client.instance.all_of import errors_of, raise_first
from rocketd.protocol.cluster import MASTER
from rocketd.remoting.bodies.tables import BrokerData


class Masters:
    """Brokers by name, each with the address of its master; None if only slaves of it are registered."""

    def __init__(self, addresses: Mapping[str, str | None]) -> None:
        self.addresses = addresses

    @classmethod
    def of(cls, brokers: Iterable[BrokerData]) -> "Masters":
        """Return the masters of brokers, sorted by name."""
        return cls(dict(sorted((broker.broker_name, broker.broker_addrs.get(MASTER)) for broker in brokers)))

    def registered(self) -> dict[str, str]:
        """Return the addresses of the registered masters by name."""
        return {name: address for name, address in self.addresses.items() if address is not None}

    def at(self, addresses: Collection[str]) -> "Masters":
        """Return the masters with one of these addresses."""
        return Masters({name: address for name, address in self.registered().items() if address in addresses})

    def address(self, broker_name: str) -> str:
        """Return the address of a broker's master. Raises BrokerUnreachableError if it is not registered."""
        address = self.addresses[broker_name]
        if address is None:
            raise no_master(broker_name)
        return address

    async def errors_of(self, tell: Callable[[str], Coroutine[Any, Any, object]]) -> list[RocketMQError]:
        """Call ``tell`` with the address of each master. Return the errors, with the brokers' names as ``broker``.

        Raises the first UsageError at once.
        """

        async def tell_master(broker_name: str) -> None:
            await tell(self.address(broker_name))

        return await errors_of(self.addresses, tell_master)

    async def tell_each(self, tell: Callable[[str], Coroutine[Any, Any, object]]) -> None:
        """Call ``tell`` with the address of each master. Then raise the first error, with the others in ``others``."""
        raise_first(await self.errors_of(tell))
