"""The settings of the name server.

Answers to NamesrvConfig and to the reading of options in NamesrvStartup: same keys, same defaults, same precedence.
"""

from collections.abc import Mapping

from rocketd.common.config import setting, settings_group
from rocketd.common.configuration import DaemonSettings, group
from rocketd.common.log_settings import LogConfig
from rocketd.common.networks import ANY, NETWORKS, PRIVATE, is_network_list
from rocketd.remoting.settings import NettyServerConfig, RemotingConfig, ServerLimits, TlsConfig


@settings_group
class NamesrvConfig:
    """What a name server keeps and where."""

    rocketmq_home: str | None = setting(
        None,
        no_effect="nothing is looked up below it.",
        remote=False,
        environment="ROCKETMQ_HOME",
        aliases=("rocketmq.home.dir",),
    )
    kv_config_path: str = setting(
        factory=lambda machine: machine.home + "/namesrv/kvConfig.json",
        formula="~/namesrv/kvConfig.json",
        doc="File that holds the KV configuration (codes 100 to 102).",
        remote=False,
    )
    config_store_path: str = setting(
        factory=lambda machine: machine.home + "/namesrv/namesrv.properties",
        formula="the file given with --config, else ~/namesrv/namesrv.properties",
        doc="File to which updateNamesrvConfig writes. Without --config, the next start reads it.",
        remote=False,
    )
    product_env_name: str = setting(
        "center", no_effect="it names the environment that a name server with clusterTest asks, see there."
    )
    cluster_test: bool = setting(False, no_effect="routes are never asked for from another environment.")
    order_message_enable: bool = setting(
        False, "Whether routes carry the ordered-topic configuration (KV namespace ORDER_TOPIC_CONFIG).", hot=True
    )
    admin_without_acl: str = setting(
        PRIVATE,
        "The addresses from which administrative writes are taken: KV configuration, settings, write permissions of "
        "brokers, deletion of topics. private means loopback, private and link-local networks of IPv4 and IPv6.",
        remote=False,
        check=is_network_list,
        accepted=NETWORKS,
    )
    broker_allowed_addresses: str = setting(
        ANY,
        "The addresses from which brokers may register and unregister.",
        hot=True,
        check=is_network_list,
        accepted=NETWORKS,
    )


NO_REQUESTS = "a name server sends no requests, it answers them."
NO_CONNECTIONS = "a name server makes no connections."


@settings_group
class NamesrvSettings(DaemonSettings):
    """All settings of a name server, by group."""

    namesrv: NamesrvConfig = group(NamesrvConfig)
    server: NettyServerConfig = group(
        NettyServerConfig,
        listen_port=9876,
        no_effect=dict.fromkeys(
            ("server_callback_executor_threads", "server_oneway_semaphore_value", "server_async_semaphore_value"),
            NO_REQUESTS,
        ),
    )
    limits: ServerLimits = group(ServerLimits)
    log: LogConfig = group(LogConfig)
    remoting: RemotingConfig = group(RemotingConfig, no_effect={"serialize_type": NO_REQUESTS})
    tls: TlsConfig = group(
        TlsConfig,
        no_effect=dict.fromkeys(
            (
                "enable",
                "client_key_path",
                "client_key_password",
                "client_cert_path",
                "client_auth_server",
                "client_trust_cert_path",
            ),
            NO_CONNECTIONS,
        ),
    )

    def kept_changes_file(self) -> str:
        """Return the path of the file that keeps changes by request if there is no configuration file."""
        return self.namesrv.config_store_path

    def derive(self, given: Mapping[str, str]) -> list[str]:
        """Write updates to the file that was read, unless `-o configStorePath` says otherwise."""
        if self.config_file is not None and given.get("configStorePath") != "-o":
            self.namesrv.config_store_path = self.config_file
        return []
