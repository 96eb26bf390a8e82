"""Connection options, shared by reads and writes and declared once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketd.spark.errors import OptionError
from rocketd.spark.options import kinds
from rocketd.spark.options.declare import camel, option

_OF_TLS: Final = ("tls_ca_file", "tls_verify", "tls_cert_file", "tls_key_file")
"""Options that have no effect without TLS."""


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Name servers, account and TLS. Secrets are left out of the repr."""

    namesrv: tuple[str, ...] = option(kinds.ADDRESSES, (), "Addresses of the cluster's name servers.")
    access_key: str = option(kinds.TEXT, "", "Account for signing requests.")
    secret_key: str = option(
        kinds.TEXT,
        "",
        "Secret of the account. Spark shows options in its UI, so prefer credentialsFile.",
        secret=True,
    )
    security_token: str = option(kinds.TEXT, "", "Token of a temporary account.", secret=True)
    credentials_file: str = option(
        kinds.PATH,
        "",
        "YAML file with accessKey and secretKey, in the form of mqadmin's conf/tools.yml. All executors must see it.",
    )
    tls: bool = option(kinds.FLAG, False, "Whether connections use TLS.")
    tls_ca_file: str = option(
        kinds.PATH,
        "",
        "File with the CA certificates (PEM) for checking the servers.",
        shown="those of the system",
    )
    tls_verify: bool = option(kinds.FLAG, True, "Whether the certificates and names of servers are checked.")
    tls_cert_file: str = option(
        kinds.PATH,
        "",
        "File with the client's certificate (PEM), for servers that ask for one.",
    )
    tls_key_file: str = option(
        kinds.PATH,
        "",
        "File with the private key of the client's certificate (PEM), not encrypted.",
    )
    timeout: float = option(kinds.DURATION, 10.0, "Timeout of one request.", shown="10s")
    retry_timeout: float = option(
        kinds.DURATION,
        300.0,
        "Time for which requests to an unreachable server are repeated before a read fails. The first request is "
        "repeated for at most 30s. A write waits 60s for the route of its topic.",
        shown="5m",
    )


def check_connection(values: Mapping[str, Any]) -> None:
    """Raise OptionError if options of account and TLS (by field) contradict each other, or if one is missing."""
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
