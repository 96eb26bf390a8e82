"""How to reach a cluster: the options that reads and writes share, declared once."""

from dataclasses import dataclass

from rocketd.spark.options import kinds
from rocketd.spark.options.declare import option


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
        "How long a server that is away is asked again before a read fails; the first question waits 30s at most.",
        shown="5m",
    )
