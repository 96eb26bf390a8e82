"""Settings of the console."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from rocketd.common.logs.settings import LogConfig
from rocketd.common.networks import LOOPBACK, NetworkList
from rocketd.common.settings.checks import ADDRESSES, HOST, is_address_list, is_host
from rocketd.common.settings.daemon_settings import DaemonSettings, group
from rocketd.common.settings.declaration import ConfigError, setting, settings_group

MAX_PORT = 65535
NO_LOGIN, ACCOUNTS, OPEN = "none", "accounts", "open"
DEFAULT_PORT = 8180
_LOOPBACK = NetworkList(LOOPBACK)
URL = "http:// or https://, a host, and perhaps a path, like https://ops.example.org/rocketmq"


def is_url(text: str) -> bool:
    """Return whether a text is the address of a console behind a proxy."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or parts.username or parts.password) and text.isprintable()
    path = all(part not in ("", ".", "..") for part in parts.path.strip("/").split("/")) or parts.path in ("", "/")
    return parts.scheme in ("http", "https") and bool(host) and plain and path and not set(text) & set(" ;,\"'<>\\%")


@settings_group
class ConsoleConfig:
    """The web console. Apache has a separate program for it."""

    namesrv_addr: str | None = setting(
        None,
        "Name servers of the cluster: host:port, separated by semicolons. Write IPv6 addresses in brackets.",
        remote=False,
        important=True,
        check=is_address_list,
        accepted=ADDRESSES,
        environment="NAMESRV_ADDR",
        formula="127.0.0.1:9876",
    )
    console_port: int = setting(
        DEFAULT_PORT,
        "Port of the pages. 0 means a free one.",
        minimum=0,
        maximum=MAX_PORT,
        remote=False,
        important=True,
    )
    console_host: str = setting(
        "127.0.0.1",
        "Address on which consolePort listens. 0.0.0.0 and :: are all addresses.",
        check=is_host,
        accepted=HOST,
        remote=False,
    )
    console_url: str | None = setting(
        None,
        "Address of the console for browsers if a proxy is in between. Its path is the base path, its host is accepted in "
        "requests, and with https cookies are sent by TLS only.",
        check=is_url,
        accepted=URL,
        remote=False,
    )
    console_login: str = setting(
        NO_LOGIN,
        "Who may use the pages. accounts: users sign in with the access key and secret of an account of the brokers "
        "(aclEnable). none: all who reach the port, which must be on a loopback address without consoleUrl. open: "
        "all who reach the port, at any address.",
        choices=(NO_LOGIN, ACCOUNTS, OPEN),
        remote=False,
        important=True,
    )
    console_read_only: bool = setting(False, "Whether all changes are refused.", remote=False)
    console_session_minutes: int = setting(
        60,
        "Time without a request after which a user must sign in again.",
        unit="min",
        minimum=1,
        maximum=1440,
        remote=False,
    )
    console_max_sessions: int = setting(
        100,
        "Maximum number of signed-in sessions. A further one ends the least recently used.",
        minimum=1,
        remote=False,
    )
    console_timeout_millis: int = setting(
        10_000, "Longest wait of a page for the cluster.", unit="ms", minimum=100, maximum=600_000, remote=False
    )
    console_cluster_tls: str = setting(
        "off",
        "TLS to the servers of the cluster: off, verified, or unverified, which accepts every server.",
        choices=("off", "verified", "unverified"),
        remote=False,
    )
    console_cluster_ca: str | None = setting(
        None,
        "File with the authorities (PEM) for consoleClusterTls=verified.",
        formula="the authorities of the system",
        remote=False,
    )


@settings_group
class ConsoleSettings(DaemonSettings):
    """All settings of a console, by group."""

    console: ConsoleConfig = group(ConsoleConfig)
    log: LogConfig = group(LogConfig)

    def derive(self, given: Mapping[str, str]) -> list[str]:
        """Refuse pages without a login that others can reach, unless ``open`` says so."""
        check_reach(self.console)
        return []


def check_reach(config: ConsoleConfig) -> None:
    """Raise ConfigError if others could reach a console without login, or if a file of authorities has no effect."""
    if config.console_login == NO_LOGIN:
        if config.console_host != "localhost" and not _LOOPBACK.allows(config.console_host):
            raise ConfigError(
                f"consoleHost={config.console_host}: others would reach the console without a login. Set "
                "consoleLogin=accounts, or consoleLogin=open if all may use it"
            )
        if config.console_url is not None:
            raise ConfigError(
                f"consoleUrl={config.console_url}: others would reach the console without a login. Set "
                "consoleLogin=accounts, or consoleLogin=open if all may use it"
            )
    if config.console_cluster_ca is not None and config.console_cluster_tls != "verified":
        raise ConfigError("consoleClusterCa is for consoleClusterTls=verified")
