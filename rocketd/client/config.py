"""What a client is told of the cluster and of itself.

Answers to ClientConfig. Plain values, checked when they are given.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import time
from typing import Any, Protocol

from rocketd.acl.credentials import Credentials
from rocketd.client.errors import IllegalOptionError
from rocketd.client.option_types import SECRET, check_types
from rocketd.common.checks import ADDRESSES, is_address_list
from rocketd.remoting.interfaces import IRPCHook
from rocketd.remoting.settings import NettyClientConfig, TlsConfig

NAMESRV_VARIABLE = "NAMESRV_ADDR"
"""Environment variable that names the name servers where the program does not."""

_URL = re.compile(r"http://[^\s/?#@]+(?:/[^\s?#]*)?", re.ASCII)

Duration = float | timedelta
"""Seconds, or a timedelta."""


def milliseconds(option: str, duration: Duration, *, zero: bool = False) -> float:
    """Return a duration in ms. Raises IllegalOptionError for one that is negative, no number, or 0 unless ``zero``."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (0 < value < float("inf") or (zero and value == 0))
    ):
        raise IllegalOptionError(f"{option}={duration!r}: accepted is a timedelta or a number of seconds above 0")
    return value * 1000.0


class Surroundings(Protocol):
    """What clients live in where that is not this machine and its time: ``rocketd.testing`` has such."""

    def reactor_on(self, reactor: Any) -> Any:
        """Return what takes the place of a reactor: it makes the connections, and has the time. Reactor thread."""

    def now_ms(self) -> float:
        """Return Unix milliseconds. Any thread."""


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """How to reach a cluster, and who asks. Raises IllegalOptionError for a value that is not accepted.

    Clients of one process whose configs are equal share their connections.
    """

    namesrv: str | Sequence[str] = ""
    """Name servers, ``host:port``, separated by semicolons or as a sequence. Empty: those of NAMESRV_ADDR in the
    environment.
    """

    name_server_url: str | None = None
    """Page of which the first line is the name servers, asked for by HTTP at first and every two minutes; a unit has its
    own, ``URL-UNIT?nofix=1``. Instead of ``namesrv``.
    """

    instance_name: str | None = None
    """What tells this client from others on this machine. None makes a name that no other has."""

    unit_name: str | None = None
    """Last part of the client id, where there is one."""

    client_ip: str | None = None
    """Address that stands in the client id. None: that of outgoing traffic."""

    namespace: str = ""
    """Put before the names of topics and groups, so that tenants do not meet."""

    credentials: Credentials | None = field(default=None, metadata=SECRET)
    """What to sign requests with."""

    tls: bool | TlsConfig = False
    """Whether to encrypt. True believes every server; a TlsConfig says which certificates are believed, and
    which is shown.
    """

    vip_channel: bool = False
    """Whether requests other than pulls go to the brokers' second port, two below the first."""

    timeout: Duration = 3.0
    """How long to wait for answers to questions that have no timeout of their own."""

    route_interval: Duration = 30.0
    """How often routes are asked for anew."""

    heartbeat_interval: Duration = 30.0
    """How often brokers are told who is here."""

    remoting: NettyClientConfig = field(default_factory=NettyClientConfig)
    """Limits of connections: idle time, time to connect, requests under way."""

    hooks: Sequence[IRPCHook] = ()
    """Called before each request and after each answer."""

    surroundings: Surroundings | None = field(default=None, repr=False)
    """Where connections and time come from. None: this machine."""

    def __post_init__(self) -> None:
        for option in ("timeout", "route_interval", "heartbeat_interval"):
            milliseconds(option, getattr(self, option))
        check_types(self)
        self._check_url()
        self.name_servers()
        if "%" in self.namespace:
            raise IllegalOptionError(f"namespace={self.namespace!r}: a namespace has no %")

    def _check_url(self) -> None:
        url = self.name_server_url
        if url is None:
            return
        if self.namesrv:
            raise IllegalOptionError("namesrv and name_server_url: one of them says where the name servers are")
        if not _URL.fullmatch(url):
            raise IllegalOptionError(f"name_server_url={url!r}: accepted is http://HOST:PORT/PATH")

    def name_servers(self) -> list[str]:
        """Return the addresses of the name servers; empty where neither program nor environment says any.

        So it is, too, where ``name_server_url`` has to be asked for them.
        """
        if self.name_server_url is not None:
            return []
        given = self.namesrv if isinstance(self.namesrv, str) else ";".join(self.namesrv)
        text = given or os.environ.get(NAMESRV_VARIABLE, "")
        if not text:
            return []
        if not is_address_list(text):
            where = "namesrv" if given else f"environment variable {NAMESRV_VARIABLE}"
            raise IllegalOptionError(f"{where}={text!r} is no list of name servers: accepted is {ADDRESSES}")
        return [part.strip() for part in text.rstrip("; ").split(";")]

    def reactor_on(self, reactor: Any) -> Any:
        """Return the reactor to use in the place of the one that runs. Reactor thread."""
        return reactor if self.surroundings is None else self.surroundings.reactor_on(reactor)

    def now_ms(self) -> float:
        """Return Unix milliseconds. Any thread."""
        return time() * 1000 if self.surroundings is None else self.surroundings.now_ms()

    @property
    def timeout_ms(self) -> float:
        """``timeout`` in ms."""
        return milliseconds("timeout", self.timeout)


def config_of(cluster: "str | Sequence[str] | ClientConfig | None") -> ClientConfig:
    """Make a config of addresses of name servers alone; return one that is given as it is."""
    return cluster if isinstance(cluster, ClientConfig) else ClientConfig(namesrv=cluster or "")
