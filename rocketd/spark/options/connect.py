"""How to reach a cluster: the options that reads and writes share, declared once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketd.spark.errors import OptionError
from rocketd.spark.options import kinds
from rocketd.spark.options.declare import camel, option

_OF_TLS: Final = ("tls_ca_file", "tls_verify", "tls_cert_file", "tls_key_file")
"""What means nothing without TLS."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Name servers, account and TLS. The values of secrets are in no repr."""

    namesrv: tuple[str, ...] = option(kinds.ADDRESSES, (), "Name servers of the cluster.")
    access_key: str = option(kinds.TEXT, "", "Account that requests are signed for.")
    secret_key: str = option(
        kinds.TEXT, "", "The account's secret. Spark shows options in its UI: prefer a file.", secret=True
    )
    security_token: str = option(kinds.TEXT, "", "Token of an account that lasts for a time only.", secret=True)
    credentials_file: str = option(
        kinds.PATH,
        "",
        "YAML file with accessKey and secretKey, as mqadmin's conf/tools.yml. All executors must see it.",
    )
    tls: bool = option(kinds.FLAG, False, "Connect with TLS.")
    tls_ca_file: str = option(
        kinds.PATH, "", "Certificates (PEM) that those of servers are checked against.", shown="those of the system"
    )
    tls_verify: bool = option(kinds.FLAG, True, "Check the certificates and names of servers.")
    tls_cert_file: str = option(kinds.PATH, "", "Our certificate (PEM), where the server asks for one.")
    tls_key_file: str = option(kinds.PATH, "", "Its private key (PEM), not encrypted.")
    timeout: float = option(kinds.DURATION, 10.0, "How long one answer is waited for.", shown="10s")
    retry_timeout: float = option(
        kinds.DURATION,
        300.0,
        "How long a server that is away is asked again before a read fails; the first question waits 30s at most, a write "
        "for the route of its topic 60s.",
        shown="5m",
    )


def check_connection(values: Mapping[str, Any]) -> None:
    """Raises OptionError where the given options of account and TLS, by field, contradict or lack each other."""
    if ("access_key" in values) is not ("secret_key" in values):
        raise OptionError("options accessKey and secretKey go together: give both or none")
    for name in ("access_key", "security_token"):
        if name in values and "credentials_file" in values:
            raise OptionError(f"options credentialsFile and {camel(name)} contradict each other: give one of them")
    if "security_token" in values and "access_key" not in values:
        raise OptionError("option securityToken goes with accessKey and secretKey: give those as well")
    for name in _OF_TLS:
        if name in values and not values.get("tls"):
            raise OptionError(f"option {camel(name)} goes with tls=true: give that as well, or nothing is encrypted")
