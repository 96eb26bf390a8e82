"""The settings of the broker.

Answers to BrokerConfig and to the rules of BrokerStartup: same keys, same defaults, same derived values.
"""

import os
import re
from collections.abc import Mapping

from rocketd.common.checks import ADDRESSES, HOST, is_address, is_address_list, is_host
from rocketd.common.config import ConfigError, Long, setting, settings_group
from rocketd.common.configuration import DaemonSettings, group
from rocketd.common.log_settings import LogConfig
from rocketd.common.networks import NETWORKS, PRIVATE, is_network_list
from rocketd.remoting.settings import NettyClientConfig, NettyServerConfig, RemotingConfig, ServerLimits, TlsConfig
from rocketd.store.log_paths import log_paths
from rocketd.store.settings import MessageStoreConfig

SMALL_POOL = "pools here isolate kinds of requests and have few threads."
COMMERCIAL = "Apache's code counts for a billing service with it."


MAX_PORT = 65535
KEPT_CHANGES = "changedByRequest.properties"
"""Name of the file in the store's config directory that keeps changes by request."""


@settings_group
class BrokerConfig:
    """Who the broker is and how it serves."""

    rocketmq_home: str | None = setting(
        None,
        "Directory below which the files of accounts are looked for: the one below, and conf/acl.",
        remote=False,
        environment="ROCKETMQ_HOME",
        aliases=("rocketmq.home.dir",),
    )
    namesrv_addr: str | None = setting(
        None,
        "Name servers to register with: host:port, separated by semicolons; IPv6 addresses in brackets.",
        hot=True,
        important=True,
        check=is_address_list,
        accepted=ADDRESSES,
        environment="NAMESRV_ADDR",
        aliases=("rocketmq.namesrv.addr",),
    )
    broker_ip1: str | None = setting(
        None,
        "Address or host name that clients are told to connect to. The start-up log says which was chosen and why.",
        name="brokerIP1",
        check=is_host,
        accepted=HOST,
        formula="an address of this machine that others can reach",
        important=True,
    )
    broker_ip2: str | None = setting(
        None,
        "Address or host name that slaves are told to replicate from.",
        name="brokerIP2",
        check=is_host,
        accepted=HOST,
        formula="an address of this machine that others can reach",
    )
    broker_name: str = setting(
        factory=lambda machine: machine.host_name or "DEFAULT_BROKER",
        formula="host name, or DEFAULT_BROKER where there is none",
        doc="Name of the broker; a master and its slaves have the same.",
        important=True,
    )
    broker_cluster_name: str = setting("DefaultCluster", "Name of the cluster the broker belongs to.", important=True)
    broker_id: Long = setting(0, "0 for a master (whatever was set), greater than 0 for a slave.", important=True)
    broker_permission: int = setting(
        6, "What clients may do here: 4 read, 2 write, 6 both, 0 nothing.", minimum=0, maximum=7, hot=True
    )
    default_topic_queue_nums: int = setting(
        8, "Queues of a topic that is created on first use, at most those of its template topic.", minimum=1, hot=True
    )
    auto_create_topic_enable: bool = setting(
        True, "Whether a send to an unknown topic creates it.", hot=True, important=True
    )
    cluster_topic_enable: bool = setting(True, "Whether a topic named like the cluster accepts messages.")
    broker_topic_enable: bool = setting(True, "Whether a topic named like the broker accepts messages.")
    auto_create_subscription_group: bool = setting(
        True, "Whether an unknown consumer group is created on first use.", hot=True, important=True
    )
    max_new_topics_per_second: int = setting(
        200,
        "Topics that sends may create in a second, in bursts of five seconds' worth; further ones are refused with "
        "SYSTEM_BUSY. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_new_groups_per_second: int = setting(
        200,
        "Consumer groups that clients may create by using them in a second, in bursts of five seconds' worth; further ones "
        "are refused with SYSTEM_BUSY. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_new_groups_per_heartbeat: int = setting(
        500,
        "Unknown consumer groups that are taken from one heartbeat; the next heartbeats bring the rest. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_queue_locks: int = setting(
        100_000,
        "Locks on queues from which on only known groups get more, and only of known queues. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_queues_per_lock_request: int = setting(
        10_000,
        "Queues that one request may lock or unlock; a request with more is refused. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    message_store_plug_in: str = setting(
        "",
        "Names of installed store plugins that wrap the store, separated by commas; the first one is outermost.",
        name="messageStorePlugIn",
        remote=False,
    )
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", "Topic that holds message traces.", important=True)
    trace_topic_enable: bool = setting(False, "Whether the message trace topic exists on this broker.", important=True)
    send_message_thread_pool_nums: int = setting(
        factory=lambda machine: min(machine.cpus, 4),
        formula="CPUs, at most 4",
        no_effect="one thread stores messages, in groups.",
    )
    put_message_future_thread_pool_nums: int = setting(
        factory=lambda machine: min(machine.cpus, 4),
        formula="CPUs, at most 4",
        no_effect="one thread stores messages, in groups.",
    )
    pull_message_thread_pool_nums: int = setting(
        factory=lambda machine: 16 + 2 * machine.cpus, formula="16 + 2 * CPUs", no_effect=SMALL_POOL
    )
    process_reply_message_thread_pool_nums: int = setting(
        factory=lambda machine: 16 + 2 * machine.cpus, formula="16 + 2 * CPUs", no_effect=SMALL_POOL
    )
    query_message_thread_pool_nums: int = setting(
        factory=lambda machine: 8 + machine.cpus, formula="8 + CPUs", no_effect=SMALL_POOL
    )
    admin_broker_thread_pool_nums: int = setting(16, no_effect=SMALL_POOL)
    client_manage_thread_pool_nums: int = setting(32, no_effect=SMALL_POOL)
    consumer_manage_thread_pool_nums: int = setting(32, no_effect=SMALL_POOL)
    heartbeat_thread_pool_nums: int = setting(
        factory=lambda machine: min(32, machine.cpus), formula="CPUs, at most 32", no_effect=SMALL_POOL
    )
    end_transaction_thread_pool_nums: int = setting(
        factory=lambda machine: max(8 + 2 * machine.cpus, 4 * min(machine.cpus, 4)),
        formula="the greater of 8 + 2 * CPUs and 4 * (CPUs, at most 4)",
        no_effect=SMALL_POOL,
    )
    flush_consumer_offset_interval: int = setting(
        5000, "How often consumer offsets are written to disk.", unit="ms", minimum=1
    )
    flush_consumer_offset_history_interval: int = setting(
        60000, no_effect="Apache's code does not read it either.", unit="ms"
    )
    reject_transaction_message: bool = setting(
        False, "Whether transactional messages are refused.", hot=True, important=True
    )
    fetch_namesrv_addr_by_address_server: bool = setting(
        False,
        "Whether the name servers are asked for by HTTP if namesrvAddr is not set: at start, every two minutes, and every "
        "10 s while none is known. The page is http://rmqAddressServerDomain:8080/rocketmq/rmqAddressServerSubGroup; its "
        "first line has the form of namesrvAddr.",
        important=True,
    )
    send_thread_pool_queue_capacity: int = setting(
        10000,
        "Requests to send that may wait before SYSTEM_BUSY is answered.",
        unit="requests",
        minimum=1,
    )
    put_thread_pool_queue_capacity: int = setting(
        10000,
        no_effect="sends wait in one queue only, see sendThreadPoolQueueCapacity.",
        unit="requests",
    )
    pull_thread_pool_queue_capacity: int = setting(
        100000, "Pull requests that may wait before SYSTEM_BUSY is answered.", unit="requests", minimum=1
    )
    reply_thread_pool_queue_capacity: int = setting(
        10000, "Reply messages that may wait before SYSTEM_BUSY is answered.", unit="requests", minimum=1
    )
    query_thread_pool_queue_capacity: int = setting(
        20000, "Queries that may wait before SYSTEM_BUSY is answered.", unit="requests", minimum=1
    )
    client_manager_thread_pool_queue_capacity: int = setting(
        1000000, "Requests about clients that may wait before SYSTEM_BUSY is answered.", unit="requests", minimum=1
    )
    consumer_manager_thread_pool_queue_capacity: int = setting(
        1000000, "Requests about consumers that may wait before SYSTEM_BUSY is answered.", unit="requests", minimum=1
    )
    heartbeat_thread_pool_queue_capacity: int = setting(
        50000, "Heartbeats that may wait before SYSTEM_BUSY is answered.", unit="requests", minimum=1
    )
    end_transaction_pool_queue_capacity: int = setting(
        100000,
        no_effect="ends of transactions wait in the queue of sends, see sendThreadPoolQueueCapacity.",
        unit="requests",
        minimum=1,
    )
    filter_server_nums: int = setting(
        0, no_effect="no filter server processes are started, and none can be by a remote change."
    )
    long_polling_enable: bool = setting(
        True, "Whether a pull that finds nothing waits for a message as long as its client asks.", hot=True
    )
    short_polling_time_mills: Long = setting(
        1000, "How long such a pull waits when longPollingEnable is false.", unit="ms", minimum=0, hot=True
    )
    max_held_pulls: int = setting(
        200000,
        "Pulls that may wait for a message at once. Further ones are refused; their clients try again after some seconds.",
        minimum=1,
    )
    max_held_pulls_per_connection: int = setting(
        10000, "The same for one connection. A client holds one pull for each queue and group.", minimum=1
    )
    max_suspend_timeout_millis: Long = setting(
        300000,
        "The longest time that a pull waits for a message, also if its client asks for more.",
        unit="ms",
        minimum=1000,
        hot=True,
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True, "Whether consumers of a group are told when one joins or leaves.", hot=True
    )
    high_speed_mode: bool = setting(False, no_effect="Apache's code does not read it either.")
    commercial_enable: bool = setting(True, no_effect=COMMERCIAL)
    commercial_timer_count: int = setting(1, no_effect=COMMERCIAL)
    commercial_trans_count: int = setting(1, no_effect=COMMERCIAL)
    commercial_big_count: int = setting(1, no_effect=COMMERCIAL)
    commercial_base_count: int = setting(1, no_effect=COMMERCIAL)
    transfer_msg_by_heap: bool = setting(True, no_effect="messages go out from the mapped file without a copy.")
    max_delay_time: int = setting(40, no_effect="Apache's code does not read it either.")
    region_id: str = setting("DefaultRegion", "Region that is told to producers for their traces.", hot=True)
    register_broker_timeout_mills: int = setting(
        6000, "How long to wait for a name server's answer to a registration.", unit="ms", minimum=1, hot=True
    )
    single_master_check: bool = setting(
        True,
        "Whether a master refuses to start, or takes no messages any more, if name servers know another master of its "
        "brokerName that answers. Apache's broker never looks.",
        hot=True,
    )
    slave_read_enable: bool = setting(False, "Whether consumers that read far back are sent to a slave.", hot=True)
    disable_consume_if_consumer_read_slowly: bool = setting(
        False, "Whether a group further behind than consumerFallbehindThreshold may no longer read.", hot=True
    )
    group_guard_grace_time: Long = setting(
        120_000,
        "How long the subscriptions of a consumer group's members may differ, and a queue stay unread, before the log and "
        "`rocketd groups` name the group.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    consumer_fallbehind_threshold: Long = setting(
        16 * 1024**3, "How far a group may fall behind.", unit="bytes", minimum=0, hot=True
    )
    broker_fast_failure_enable: bool = setting(
        True, "Whether requests that have waited too long are answered SYSTEM_BUSY.", hot=True
    )
    wait_time_mills_in_send_queue: Long = setting(
        200, "How long a send may wait for its turn before SYSTEM_BUSY.", unit="ms", minimum=0, hot=True
    )
    wait_time_mills_in_pull_queue: Long = setting(
        5000, "How long a pull may wait for its turn before SYSTEM_BUSY.", unit="ms", minimum=0, hot=True
    )
    wait_time_mills_in_heartbeat_queue: Long = setting(
        31000, "How long a heartbeat may wait for its turn before SYSTEM_BUSY.", unit="ms", minimum=0, hot=True
    )
    wait_time_mills_in_transaction_queue: Long = setting(
        3000, "How long the end of a transaction may wait before SYSTEM_BUSY.", unit="ms", minimum=0, hot=True
    )
    start_accept_send_request_time_stamp: Long = setting(
        0, "Sends before this time (since 1970-01-01 UTC) are refused.", unit="ms", minimum=0, hot=True
    )
    trace_on: bool = setting(True, "Whether producers and consumers are told that tracing is on.", hot=True)
    enable_calc_filter_bit_map: bool = setting(
        False,
        "Whether SQL92 filters are evaluated once when a message is stored, for the consume queue extension: pulls then "
        "pass over what does not match without reading it. Needs enableConsumeQueueExt.",
        hot=True,
    )
    expect_consumer_num_use_filter: int = setting(
        32, "Consumer groups with filters that the filter bitmap is sized for.", minimum=1
    )
    max_error_rate_of_bloom_filter: int = setting(
        20, "Share of false matches that the filter bitmap may give.", unit="%", minimum=1, maximum=99
    )
    filter_data_clean_time_span: Long = setting(
        24 * 3600 * 1000, "How long the filter of a group that is gone is kept.", unit="ms", minimum=0, hot=True
    )
    filter_support_retry: bool = setting(
        False,
        "Whether SQL92 filters also apply to messages of retry topics, each by that of the topic it comes from.",
        hot=True,
    )
    enable_property_filter: bool = setting(False, "Whether consumers may filter with SQL92 expressions.", hot=True)
    compressed_register: bool = setting(False, "Whether registrations with name servers are compressed.", hot=True)
    force_register: bool = setting(
        True, "Whether the broker registers every period, even if nothing has changed.", hot=True
    )
    register_name_server_period: int = setting(
        30000, "How often the broker registers; values outside 10000 to 60000 are brought to the nearer end.", unit="ms"
    )
    transaction_time_out: Long = setting(
        6000,
        "How old a half message must be before its producer is asked about it.",
        unit="ms",
        minimum=0,
        hot=True,
        important=True,
    )
    transaction_check_max: int = setting(
        15,
        "How often a producer is asked about one half message before it is dropped.",
        minimum=1,
        hot=True,
        important=True,
    )
    transaction_check_interval: Long = setting(
        60000, "How often half messages are looked through.", unit="ms", minimum=1, important=True
    )
    acl_enable: bool = setting(
        False,
        "Whether requests need the rights of an account, or a white address. The name server asks for none.",
        important=True,
    )
    acl_strict: bool = setting(
        False,
        "Whether what Apache 4.9.7 leaves open to every account is closed: batches, replies, queue locks, messages "
        "given back and ends of transactions need the right to their topics and group; settings, accounts, messages by "
        "offset id, offsets of other groups and clean-up need an admin.",
        remote=False,
        system_property=True,
    )
    admin_without_acl: str = setting(
        PRIVATE,
        "Without aclEnable, the addresses from which administrative writes are taken: changes of topics, groups and "
        "settings, resets of offsets, clean-ups. private means loopback, private and link-local networks of IPv4 and IPv6.",
        remote=False,
        check=is_network_list,
        accepted=NETWORKS,
    )
    acl_credentials_file: str | None = setting(
        None,
        "File with the accessKey and secretKey that this broker signs its own requests with, as a slave or behind a name "
        "server that asks; relative to rocketmqHome. It has the form of Apache's conf/tools.yml.",
        remote=False,
        system_property=True,
    )
    store_reply_message_enable: bool = setting(
        True, "Whether replies of request-reply are stored beside being passed on.", hot=True
    )
    enable_detail_stat: bool = setting(True, "Whether statistics are kept for each queue too.")
    auto_delete_unused_stats: bool = setting(
        False,
        no_effect="statistics of a deleted topic or group are always deleted with it.",
        hot=True,
    )
    isolate_log_enable: bool = setting(False, no_effect="twistd --logfile gives each broker its own log.")
    rmq_address_server_domain: str = setting(
        "jmenv.tbsite.net",
        "Host that fetchNamesrvAddrByAddressServer asks, or host:port.",
        check=lambda text: is_host(text) or is_address(text),
        accepted="a host or host:port",
        remote=False,
        aliases=("rocketmq.namesrv.domain",),
        system_property=True,
    )
    rmq_address_server_sub_group: str = setting(
        "nsaddr",
        "Last part of the path that fetchNamesrvAddrByAddressServer asks for.",
        check=lambda text: bool(re.fullmatch(r"[!-~]+", text)),
        accepted="the end of a URL",
        remote=False,
        aliases=("rocketmq.namesrv.domain.subgroup",),
        system_property=True,
    )
    rebalance_lock_max_live_time: Long = setting(
        60000,
        "How long a consumer's lock on a queue lives without being renewed.",
        name="rocketmq.broker.rebalance.lockMaxLiveTime",
        unit="ms",
        minimum=1,
        system_property=True,
    )
    acl_plain_file: str = setting(
        "conf/plain_acl.yml",
        "The file of accounts that administration writes new ones to, relative to rocketmqHome.",
        name="rocketmq.acl.plain.file",
        remote=False,
        system_property=True,
    )


@settings_group
class BrokerSettings(DaemonSettings):
    """All settings of a broker, by group."""

    broker: BrokerConfig = group(BrokerConfig)
    server: NettyServerConfig = group(NettyServerConfig, listen_port=10911)
    limits: ServerLimits = group(ServerLimits)
    log: LogConfig = group(LogConfig)
    client: NettyClientConfig = group(NettyClientConfig)
    store: MessageStoreConfig = group(MessageStoreConfig)
    remoting: RemotingConfig = group(RemotingConfig)
    tls: TlsConfig = group(TlsConfig)

    def kept_changes_file(self) -> str:
        """Return the path of the file that keeps changes by request if there is no configuration file."""
        return os.path.join(self.store.store_path_root_dir, "config", KEPT_CHANGES)

    def derive(self, given: Mapping[str, str]) -> list[str]:
        """Apply the rules of BrokerStartup to what was not given, and refuse what contradicts itself."""
        warnings = []
        broker, store = self.broker, self.store
        if not broker.broker_name:
            broker.broker_name = self.machine.host_name or "DEFAULT_BROKER"
        if store.enable_d_leger_commit_log:
            raise ConfigError(
                f"{given['enableDLegerCommitLog']}: enableDLegerCommitLog = true: there is no DLedger commit log here; "
                "replicate with brokerRole=SYNC_MASTER and a SLAVE instead"
            )
        paths = log_paths(store)
        if not paths.writable:
            raise ConfigError(
                f"{given.get('storePathCommitLog', 'default')}: storePathCommitLog = {paths.text}: there is no "
                "directory for new files; name one that is not in readOnlyCommitLogStorePaths"
            )
        if store.read_only_commit_log_store_paths and not paths.read_only:
            warnings.append(
                f"{given.get('readOnlyCommitLogStorePaths', 'default')}: readOnlyCommitLogStorePaths = "
                f"{store.read_only_commit_log_store_paths}: not read, since storePathCommitLog names one directory; "
                f"write it as {paths.text}{store.multi_path_splitter} to have both"
            )
        if store.broker_role != "SLAVE":
            if broker.broker_id != 0:
                warnings.append(
                    f"{given['brokerId']}: brokerId = {broker.broker_id}: brokerRole {store.broker_role} "
                    "means brokerId 0; set brokerRole=SLAVE if this is a slave"
                )
                broker.broker_id = 0
        elif broker.broker_id <= 0:
            raise ConfigError(
                f"{given.get('brokerId', 'default')}: brokerId = {broker.broker_id}: a SLAVE needs a whole number "
                "greater than 0"
            )
        elif "accessMessageInMemoryMaxRatio" not in given:
            store.access_message_in_memory_max_ratio -= 10
        if "haListenPort" not in given:
            if self.server.listen_port == MAX_PORT:
                raise ConfigError(
                    f"{given.get('listenPort', 'default')}: listenPort = {MAX_PORT}: there is no port behind it for "
                    "haListenPort; set haListenPort too, or another listenPort"
                )
            store.ha_listen_port = self.server.listen_port + 1 if self.server.listen_port else 0
        if "useTLS" not in given:
            self.client.use_tls = self.tls.enable if "tls.enable" in given else self.tls.server_mode == "enforcing"
        if "haTlsEnable" not in given:
            store.ha_tls_enable = store.ha_tls_mode == "enforcing"
        return warnings
