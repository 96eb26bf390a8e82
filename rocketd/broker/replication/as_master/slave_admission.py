"""Admission of slaves: a connection identifies itself by address or certificate before it gets a byte.

Apache's port accepts every connection. Here a connection is identified when its first report has arrived, and its
host is listed or its certificate is verified. Until then it gets no byte of the log, no send waits for it, and it
occupies no place for slaves. Unidentified connections have a separate limit. Beyond it the oldest one of the busiest
address is closed, so that idle connections keep no slave out. Everything belongs to the reactor thread.
"""

import typing
from collections import Counter

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketd.broker.replication.trusted_peers import TrustedPeers
from rocketd.common.logs.throttle import LogThrottle, ThrottledLog
from rocketd.remoting.tls.contexts import DISABLED
from rocketd.store.base.settings import MessageStoreConfig


class Candidate(typing.Protocol):
    """A connection to the port for slaves, as seen here."""

    host: str
    address: str

    @property
    def has_certificate(self) -> bool:
        """Whether it has shown a verified certificate."""

    @property
    def is_local(self) -> bool:
        """Whether it comes from an address of this machine."""

    def abort(self) -> None:
        """Close it at once."""

    def identified(self) -> None:
        """Serve it from now on."""


class SlaveAdmission:
    """Decides about each connection: ``opened``, ``reported`` at its first report, ``closed``."""

    _log = Logger()

    def __init__(self, config: MessageStoreConfig, reactor: IReactorTime, peers: TrustedPeers) -> None:
        self._config = config
        self._reactor = reactor
        self._peers = peers
        self.refused = 0
        """The number of connections closed as unidentified or because of a limit."""
        self._opened_at: dict[Candidate, float] = {}
        """The unidentified connections, in the order of arrival."""
        self._identified: dict[Candidate, str] = {}
        self._lines = ThrottledLog(self._log, LogThrottle(reactor.seconds))

    # ------------------------------------------------------------ connections

    def opened(self, candidate: Candidate) -> None:
        """Take a new connection."""
        if len(self._opened_at) >= self._config.ha_max_unidentified:
            self._close_oldest()
        self._opened_at[candidate] = self._reactor.seconds()

    def reported(self, candidate: Candidate) -> None:
        """Serve or close a connection at its first report."""
        if candidate.has_certificate:
            self._peers.prove(candidate.host)
        # The certificate speaks for its connection: others from the same host need one too, or the list.
        if candidate.has_certificate or self._peers.lists(candidate.host, is_local=candidate.is_local):
            self._identify(candidate)
            return
        certificate = "" if self._config.ha_tls_mode == DISABLED else ", and it has shown no certificate"
        self._close(
            candidate,
            "address",
            f"its address is not in haAllowedAddresses ({self._config.ha_allowed_addresses}){certificate}; if it is a "
            "slave of this broker, add its address",
        )

    def closed(self, candidate: Candidate, fault: str | None = None) -> None:
        """Forget a connection. ``fault`` describes a problem, for example with its certificate."""
        if self._opened_at.pop(candidate, None) is not None and fault is not None:
            self._refuse(candidate, "fault", fault)
        self._identified.pop(candidate, None)

    def close_unidentified(self) -> None:
        """Close the connections that did not identify themselves in time."""
        seconds = self._config.ha_identify_timeout / 1000
        oldest = self._reactor.seconds() - seconds
        for candidate in [candidate for candidate, opened_at in self._opened_at.items() if opened_at <= oldest]:
            self._close(
                candidate, "haIdentifyTimeout", f"it has made no report within {seconds:g} s (haIdentifyTimeout)"
            )

    def stop(self) -> None:
        """Close the unidentified connections."""
        for candidate in list(self._opened_at):
            candidate.abort()

    # ------------------------------------------------------------ decisions

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

    def _close_oldest(self) -> None:
        """Close the oldest unidentified connection of the address with most of them."""
        hosts = Counter(candidate.host for candidate in self._opened_at)
        (busiest, _) = hosts.most_common(1)[0]
        oldest = next(candidate for candidate in self._opened_at if candidate.host == busiest)
        self._close(
            oldest,
            "haMaxUnidentified",
            f"{len(self._opened_at)} connections have not reported their offset (haMaxUnidentified)",
        )

    def _close(self, candidate: Candidate, kind: str, why: str) -> None:
        self._opened_at.pop(candidate, None)
        self._refuse(candidate, kind, why)
        candidate.abort()

    def _refuse(self, candidate: Candidate, kind: str, why: str) -> None:
        self.refused += 1
        self._lines.warn(kind, "{address} is not accepted as a slave: {why}", address=candidate.address, why=why)
