"""Settings of the name server.

Counterpart: `NamesrvConfig`, and the option reading of `NamesrvStartup` (Apache), with the same keys, defaults and
precedence.
"""

from collections.abc import Mapping

from rocketd.common.logs.settings import LogConfig
from rocketd.common.networks import NETWORKS, PRIVATE, is_network_list
from rocketd.common.process.process_settings import ProcessConfig
from rocketd.common.settings.daemon_settings import DaemonSettings, group
from rocketd.common.settings.declaration import setting, settings_group
from rocketd.metrics.settings import MetricsConfig
from rocketd.namesrv.address_rules import RULES, are_address_rules
from rocketd.remoting.serving.settings import NettyServerConfig, RemotingConfig, ServerLimits
from rocketd.remoting.settings import TlsConfig


@settings_group
class NamesrvConfig:
    """Files and behaviour of a name server."""

    rocketmq_home: str | None = setting(
        None,
        no_effect="the name server does not read files below it.",
        remote=False,
        environment="ROCKETMQ_HOME",
        aliases=("rocketmq.home.dir",),
    )
    kv_config_path: str = setting(
        factory=lambda machine: machine.home + "/namesrv/kvConfig.json",
        formula="~/namesrv/kvConfig.json",
        doc="File of the KV configuration (codes 100 to 102).",
        remote=False,
    )
    config_store_path: str = setting(
        factory=lambda machine: machine.home + "/namesrv/namesrv.properties",
        formula="the file given with --config, else ~/namesrv/namesrv.properties",
        doc="File that updateNamesrvConfig writes to. With --config it is that file, as in Apache's, even if the file names "
        "another one. Without --config, the next start reads it.",
        remote=False,
    )
    product_env_name: str = setting(
        "center",
        no_effect="it names the environment for clusterTest, and clusterTest has no effect.",
    )
    cluster_test: bool = setting(
        False,
        no_effect="the name server never requests routes from another environment.",
    )
    order_message_enable: bool = setting(
        False,
        "Whether routes contain the configuration of ordered topics (KV namespace ORDER_TOPIC_CONFIG).",
        hot=True,
    )
    admin_without_acl: str = setting(
        PRIVATE,
        "Client addresses from which administrative writes are accepted: KV configuration, settings, write "
        "permissions of brokers, deletion of topics. private means loopback, private and link-local networks of IPv4 "
        "and IPv6.",
        remote=False,
        check=is_network_list,
        accepted=NETWORKS,
    )
    broker_allowed_addresses: str = setting(
        PRIVATE,
        "Addresses from which brokers may register and unregister. A registered broker can take over routes. private "
        "has the same meaning as in adminWithoutAcl. Add the addresses of brokers with public addresses.",
        hot=True,
        check=is_network_list,
        accepted=NETWORKS,
    )

    addresses_by_network: str = setting(
        "",
        "Addresses of brokers for askers of a network, in place of the registered ones, in routes and lists of brokers. "
        "For each address, the first rule with the asker's network and this address counts.",
        hot=True,
        check=are_address_rules,
        accepted=RULES,
    )


NO_REQUESTS = "a name server only answers requests."
NO_CONNECTIONS = "a name server makes no outgoing connections."


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
    metrics: MetricsConfig = group(MetricsConfig)
    process: ProcessConfig = group(ProcessConfig)
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
        """Return the path of the file for settings changed by requests, used without a configuration file."""
        return self.namesrv.config_store_path

    def derive(self, given: Mapping[str, str]) -> list[str]:
        """Write updates to the file that was read, unless `-o configStorePath` says otherwise."""
        if self.config_file is not None and given.get("configStorePath") != "-o":
            self.namesrv.config_store_path = self.config_file
        return []
