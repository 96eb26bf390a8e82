"""Logs the start and the end of outages of brokers: one line each, however many requests fail.

Each queue, heartbeat and offset of a client fails while its broker is away. The line at the start has the first of these
failures, the line at the end their number. Reactor thread.
"""

from collections.abc import Callable, Collection

from twisted.logger import Logger

from rocketd.client.errors import ConnectionLostError, RequestTimeoutError, UnreachableError

OUTAGES = (UnreachableError, ConnectionLostError, RequestTimeoutError)
"""The errors of a broker that does not answer."""


class Outages:
    """The brokers that do not answer now. ``address_of`` returns the address for a broker's name."""

    log = Logger()

    def __init__(self, seconds: Callable[[], float], address_of: Callable[[str], str | None]) -> None:
        self._seconds = seconds
        self._address_of = address_of
        self.begun: dict[str, tuple[float, int]] = {}
        """The start of each outage, and the number of failed requests, by address."""

    def covers(self, what: str, error: Exception) -> bool:
        """Note that ``what`` has failed. Return whether an outage is the cause, which is logged here."""
        if not isinstance(error, OUTAGES):
            return False
        broker = error.broker or "a broker"
        address = self._address_of(broker) or broker
        began, failures = self.begun.get(address, (self._seconds(), 0))
        self.begun[address] = began, failures + 1
        if failures:
            self.log.debug("{what}: {error}", what=what, error=error)
        else:
            self.log.warn("broker {address} does not answer: {what}: {error}", address=address, what=what, error=error)
        return True

    def answered(self, address: str) -> None:
        """Note an answer. The outage of the broker is over, if there was one."""
        outage = self.begun.pop(address, None)
        if outage is not None:
            began, failures = outage
            self.log.info(
                "broker {address} answers again after {seconds:.1f} s; {count} requests failed",
                address=address,
                seconds=self._seconds() - began,
                count=failures,
            )

    def keep(self, addresses: Collection[str]) -> None:
        """Forget all other brokers."""
        self.begun = {address: outage for address, outage in self.begun.items() if address in addresses}
