"""Who may be a slave: connections identify themselves, by their address or a certificate, before they get a byte.

No counterpart in Apache, whose port takes everybody. A connection is identified when its address is allowed and its first
report is there. Until then it counts for nothing: it gets no byte of the log, no send waits for it, and it takes none of
the places for slaves. The connections that are not identified have places of their own, from which a newcomer drives the
oldest, so that idle ones keep nobody out. All of it belongs to the reactor thread.
"""

import typing
from collections import Counter
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketd.common.log_throttle import LogThrottle, ThrottledLog
from rocketd.common.networks import network_list
from rocketd.store.settings import MessageStoreConfig


class Brokers(typing.Protocol):
    """The addresses of the other brokers of this name: see KnownBrokers."""

    def knows(self, host: str) -> bool:
        """Tell whether a broker is at a host."""

    def look(self) -> "Deferred[None]":
        """Find out more; fires when ``knows`` can be asked again."""


class Candidate(typing.Protocol):
    """A connection to the port for slaves, as it is seen here."""

    host: str
    address: str

    @property
    def has_certificate(self) -> bool:
        """Whether it has shown a certificate that was verified."""

    def abort(self) -> None:
        """Close it at once."""

    def identified(self) -> None:
        """Serve it from now on."""


class Admission:
    """Decides about each connection: ``opened``, ``reported`` with its first report, ``closed``."""

    _log = Logger()

    def __init__(self, config: MessageStoreConfig, reactor: Any, brokers: Brokers) -> None:
        self._config = config
        self._reactor = reactor
        self._brokers = brokers
        self.refused = 0
        """Connections that were closed because they were not identified, or because of a limit."""
        self._opened_at: dict[Candidate, float] = {}
        """Those that are not identified, in the order they came."""
        self._identified: dict[Candidate, str] = {}
        self._lines = ThrottledLog(self._log, LogThrottle(reactor.seconds))

    # ------------------------------------------------------------ connections

    def opened(self, candidate: Candidate) -> bool:
        """Take a new connection in; False if it has to be closed at once."""
        if not self._may_identify(candidate.host):
            self._refuse(candidate, "address", "its address is not in haAllowedAddresses")
            return False
        if len(self._opened_at) >= self._config.ha_max_unidentified:
            self._drive_out()
        self._opened_at[candidate] = self._reactor.seconds()
        return True

    def reported(self, candidate: Candidate) -> None:
        """A connection has made its first report: serve it, close it, or ask the name servers about it."""
        asks = network_list(self._config.ha_allowed_addresses).brokers and not candidate.has_certificate
        if not asks:
            self._decide(candidate)
        elif self._is_allowed(candidate):
            self._identify(candidate)
            # For the next time: what is known of name servers must not grow old.
            self._brokers.look()
        else:
            self._brokers.look().addCallback(lambda _: self._decide(candidate))

    def closed(self, candidate: Candidate, fault: str | None = None) -> None:
        """Forget a connection. ``fault`` says what was wrong with it, such as its certificate."""
        if self._opened_at.pop(candidate, None) is not None and fault is not None:
            self._refuse(candidate, "fault", fault)
        self._identified.pop(candidate, None)

    def look_after(self) -> None:
        """Close the connections that have taken too long."""
        seconds = self._config.ha_identify_timeout / 1000
        oldest = self._reactor.seconds() - seconds
        for candidate in [candidate for candidate, opened_at in self._opened_at.items() if opened_at <= oldest]:
            self._close(
                candidate, "haIdentifyTimeout", f"it has made no report within {seconds:g} s (haIdentifyTimeout)"
            )

    def stop(self) -> None:
        """Close the connections that are not identified."""
        for candidate in list(self._opened_at):
            candidate.abort()

    # ------------------------------------------------------------ decisions

    def _may_identify(self, host: str) -> bool:
        allowed = network_list(self._config.ha_allowed_addresses)
        return allowed.brokers or allowed.allows(host)

    def _is_allowed(self, candidate: Candidate) -> bool:
        allowed = network_list(self._config.ha_allowed_addresses)
        if allowed.allows(candidate.host):
            return True
        return allowed.brokers and (candidate.has_certificate or self._brokers.knows(candidate.host))

    def _decide(self, candidate: Candidate) -> None:
        if candidate not in self._opened_at:
            return
        if self._is_allowed(candidate):
            self._identify(candidate)
        else:
            self._close(
                candidate,
                "address",
                f"haAllowedAddresses is {self._config.ha_allowed_addresses}, and no name server knows a broker of this "
                "brokerName at that address; if it is a slave, add its address",
            )

    def _identify(self, candidate: Candidate) -> None:
        slaves = Counter(self._identified.values())
        total, here = slaves.total(), slaves[candidate.host]
        if total >= self._config.ha_max_slaves:
            self._close(candidate, "haMaxSlaves", f"{total} slaves are connected (haMaxSlaves)")
        elif here >= self._config.ha_max_slaves_per_address:
            why = f"{here} slaves are connected from its address (haMaxSlavesPerAddress)"
            self._close(candidate, "haMaxSlavesPerAddress", why)
        else:
            del self._opened_at[candidate]
            self._identified[candidate] = candidate.host
            candidate.identified()

    def _drive_out(self) -> None:
        """Close the oldest connection of the address that has most of those that are not identified."""
        hosts = Counter(candidate.host for candidate in self._opened_at)
        (busiest, _) = hosts.most_common(1)[0]
        oldest = next(candidate for candidate in self._opened_at if candidate.host == busiest)
        self._close(
            oldest, "haMaxUnidentified", f"{len(self._opened_at)} connections have made no report (haMaxUnidentified)"
        )

    def _close(self, candidate: Candidate, kind: str, why: str) -> None:
        self._opened_at.pop(candidate, None)
        self._refuse(candidate, kind, why)
        candidate.abort()

    def _refuse(self, candidate: Candidate, kind: str, why: str) -> None:
        self.refused += 1
        self._lines.warn(kind, "{address} is not accepted as a slave: {why}", address=candidate.address, why=why)
