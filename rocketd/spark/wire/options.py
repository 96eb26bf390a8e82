"""The connection settings of a cluster: addresses, account and TLS, as one value that is sent to the tasks.

Names are those of the client; ``docs/spark.md`` explains them.
"""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field

from rocketd.common.names import TOOLS_GROUP
from rocketd.spark.errors import OptionError


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The name servers, and the settings of connections to them and to brokers. Picklable, hashable.

    `namesrv` is a list of ``HOST:PORT``, or one text with several separated by ``;`` or ``,``. An IPv6 address stands
    in brackets. `timeout` limits one request, and `patience` the repetition of a request that may succeed later; both
    in seconds. `group` is the consumer group named in pulls. Brokers have the default group from their first start, and
    nothing is committed for it. Secrets are left out of the repr. Raises OptionError.
    """

    namesrv: tuple[str, ...]
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_verify: bool = True
    timeout: float = 30.0
    patience: float = 60.0
    group: str = TOOLS_GROUP

    def __init__(
        self,
        namesrv: str | Iterable[str],
        access_key: str = "",
        secret_key: str = "",
        security_token: str = "",
        tls: bool = False,
        tls_ca: str = "",
        tls_cert: str = "",
        tls_key: str = "",
        tls_verify: bool = True,
        timeout: float = 30.0,
        patience: float = 60.0,
        group: str = TOOLS_GROUP,
    ) -> None:
        given = [namesrv] if isinstance(namesrv, str) else list(namesrv)
        addresses = [part.strip() for text in given for part in text.replace(",", ";").split(";")]
        for name, value in {
            "namesrv": tuple(dict.fromkeys(filter(None, addresses))),
            "access_key": access_key,
            "secret_key": secret_key,
            "security_token": security_token,
            "tls": tls,
            "tls_ca": tls_ca,
            "tls_cert": tls_cert,
            "tls_key": tls_key,
            "tls_verify": tls_verify,
            "timeout": timeout,
            "patience": patience,
            "group": group,
        }.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        if not self.namesrv:
            raise OptionError("no name server is named: give its address as HOST:PORT, several parted by ;")
        for address in self.namesrv:
            host_and_port(address)
        if bool(self.access_key) != bool(self.secret_key):
            raise OptionError("an access key and a secret key belong together: give both or none")
        if self.security_token and not self.access_key:
            raise OptionError("a security token needs the access key and the secret key that it belongs to")
        if self.tls_key and not self.tls_cert:
            raise OptionError("a TLS key needs the certificate that it belongs to")
        if self.timeout <= 0 or self.patience < 0:
            raise OptionError(f"timeout={self.timeout:g}, patience={self.patience:g}: both are seconds, above zero")


def host_and_port(address: str) -> tuple[str, int]:
    """Split ``HOST:PORT``; an IPv6 address loses its brackets. Raises OptionError."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise OptionError(f"{address!r} is not an address: give HOST:PORT, an IPv6 address in brackets")
    return host, int(port)


def tls_context(options: ClusterOptions) -> ssl.SSLContext:
    """Return the TLS context of all connections. Without `tls_verify` servers are not verified. Raises OptionError."""
    try:
        context = ssl.create_default_context(cafile=options.tls_ca or None)
        if not options.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if options.tls_cert:
            context.load_cert_chain(options.tls_cert, options.tls_key or None, _no_password)
    except (OSError, ValueError) as error:
        files = ", ".join(filter(None, (options.tls_ca, options.tls_cert, options.tls_key)))
        raise OptionError(f"the TLS files {files} cannot be used: {error}") from error
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one that is not")
