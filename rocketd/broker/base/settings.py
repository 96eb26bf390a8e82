"""The settings of the broker: Apache's keys, defaults and derived values.

Counterpart: `BrokerConfig`, and the rules of `BrokerStartup` (Apache).
"""

import os
import re
from collections.abc import Mapping

from rocketd.common.logs.settings import LogConfig
from rocketd.common.networks import NETWORKS, PRIVATE, is_network_list
from rocketd.common.process.process_settings import ProcessConfig
from rocketd.common.settings.checks import ADDRESSES, HOST, is_address, is_address_list, is_host
from rocketd.common.settings.daemon_settings import DaemonSettings, group
from rocketd.common.settings.declaration import ConfigError, Long, setting, settings_group
from rocketd.metrics.settings import MetricsConfig
from rocketd.remoting.serving.settings import NettyServerConfig, RemotingConfig, ServerLimits
from rocketd.remoting.settings import NettyClientConfig, TlsConfig
from rocketd.store.base.settings import MessageStoreConfig
from rocketd.store.log.log_paths import log_paths

SMALL_POOL = "each kind of request has its pool of a few threads."
COMMERCIAL = "only Apache's broker counts messages for a billing service."


WAITS = "the broker waits for the answer to each of its requests to name servers and other brokers, as Apache's does."

MAX_PORT = 65535
VIP_PORT_DISTANCE = 2
"""The distance to the second port: older clients use the one two below as well."""
KEPT_CHANGES = "changedByRequest.properties"
"""The name of the file in the store's config directory with the changes made by requests."""


@settings_group
class BrokerConfig:
    """Identity of the broker, and how it serves."""

    rocketmq_home: str | None = setting(
        None,
        "Directory of the account files: rocketmq.acl.plain.file and conf/acl are looked up below it.",
        remote=False,
        environment="ROCKETMQ_HOME",
        aliases=("rocketmq.home.dir",),
    )
    namesrv_addr: str | None = setting(
        None,
        "Name servers that the broker registers with: host:port, separated by semicolons. Write IPv6 addresses in "
        "brackets.",
        hot=True,
        important=True,
        check=is_address_list,
        accepted=ADDRESSES,
        environment="NAMESRV_ADDR",
        aliases=("rocketmq.namesrv.addr",),
    )
    broker_ip1: str | None = setting(
        None,
        "Address or host name of this broker for clients. The start log names the chosen address and the reason.",
        name="brokerIP1",
        check=is_host,
        accepted=HOST,
        formula="an address of this machine reachable for others",
        important=True,
    )
    broker_ip2: str | None = setting(
        None,
        "Address or host name of this broker for slaves: they replicate from it.",
        name="brokerIP2",
        check=is_host,
        accepted=HOST,
        formula="an address of this machine reachable for others",
    )
    broker_name: str = setting(
        factory=lambda machine: machine.host_name or "DEFAULT_BROKER",
        formula="host name, or DEFAULT_BROKER without one",
        doc="Name of the broker. A master and its slaves have the same name.",
        important=True,
    )
    broker_cluster_name: str = setting("DefaultCluster", "Name of the broker's cluster.", important=True)
    broker_id: Long = setting(
        0,
        "Number of the broker among those of its brokerName. A master always has 0, also if another number is set. A "
        "slave needs a number greater than 0.",
        important=True,
    )
    broker_permission: int = setting(
        6,
        "Rights of clients on this broker: 4 read, 2 write, 6 both, 0 none.",
        minimum=0,
        maximum=7,
        hot=True,
    )
    default_topic_queue_nums: int = setting(
        8,
        "Number of queues of a topic created by its first send. Its template topic's number is the upper limit.",
        minimum=1,
        hot=True,
    )
    auto_create_topic_enable: bool = setting(
        True,
        "Whether the first send to an unknown topic creates it.",
        hot=True,
        important=True,
    )
    cluster_topic_enable: bool = setting(
        True,
        "Whether the topic with the name of the cluster can be read and written.",
    )
    broker_topic_enable: bool = setting(
        True,
        "Whether the topic with the name of the broker can be read and written.",
    )
    auto_create_subscription_group: bool = setting(
        True,
        "Whether the first use of an unknown consumer group creates it.",
        hot=True,
        important=True,
    )
    max_new_topics_per_second: int = setting(
        200,
        "Maximum number of topics that sends create per second. After a quiet time, five seconds' worth may come at "
        "once from one address, and as much is left for others: clients at busy addresses get equal shares. Further "
        "sends to new topics are refused with SYSTEM_BUSY. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_new_groups_per_second: int = setting(
        200,
        "Maximum number of consumer groups that clients create per second by using them, shared by addresses as with "
        "maxNewTopicsPerSecond. After a quiet time, five seconds' worth may come at once from one address. Further "
        "ones are refused with SYSTEM_BUSY. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_topics: int = setting(
        50_000,
        "Number of topics on the broker at which sends stop creating topics. Administrators can still create them. 0 "
        "means no limit.",
        minimum=0,
        hot=True,
    )
    max_consumer_groups: int = setting(
        50_000,
        "Number of consumer groups on the broker at which clients stop creating groups by using them. Administrators "
        "can still create them. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_new_groups_by_offsets_per_second: int = setting(
        10,
        "Maximum number of consumer groups created per second by setting offsets before the first consumer starts, "
        "as mqadmin does, shared by addresses as with maxNewTopicsPerSecond. After a quiet time, five seconds' worth "
        "may come at once from one address. Further ones are refused with SYSTEM_BUSY. With 0, only "
        "maxNewGroupsPerSecond limits them.",
        minimum=0,
        hot=True,
    )
    max_new_groups_per_heartbeat: int = setting(
        500,
        "Maximum number of unknown consumer groups registered from one heartbeat. The next heartbeats bring the "
        "rest. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_groups_per_connection: int = setting(
        2000,
        "Maximum number of producer groups, and of consumer groups, of a client on one connection. A heartbeat with "
        "more groups is refused as a whole. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_subscriptions_per_connection: int = setting(
        10_000,
        "Maximum number of subscriptions of a client on one connection, summed over its consumer groups. A heartbeat "
        "with more is refused as a whole. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_heartbeat_bytes: int = setting(
        4 << 20,
        "Maximum size of a heartbeat's body. A longer one is refused before it is decoded. 0 means no limit.",
        unit="bytes",
        minimum=0,
        hot=True,
    )
    max_queue_locks: int = setting(
        100_000,
        "Number of queue locks at which unknown groups and unknown queues get no more locks. Known groups still get "
        "locks of known queues. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    max_queues_per_lock_request: int = setting(
        10_000,
        "Maximum number of queues in one request to lock or unlock. A request with more is refused. 0 means no limit.",
        minimum=0,
        hot=True,
    )
    message_store_plug_in: str = setting(
        "",
        "Names of the installed store plugins that wrap the store, separated by commas. The first one is outermost.",
        name="messageStorePlugIn",
        remote=False,
    )
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC", "Topic for message traces.", important=True)
    trace_topic_enable: bool = setting(
        False,
        "Whether this broker has the message trace topic.",
        important=True,
    )
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
        5000,
        "Interval at which consumer offsets are written to disk.",
        unit="ms",
        minimum=1,
    )
    flush_consumer_offset_history_interval: int = setting(
        60000, no_effect="Apache's code does not read it either.", unit="ms"
    )
    reject_transaction_message: bool = setting(
        False,
        "Whether transactional messages are refused.",
        hot=True,
        important=True,
    )
    fetch_namesrv_addr_by_address_server: bool = setting(
        False,
        "Whether the broker gets its name servers by HTTP if namesrvAddr is not set. It asks at start, then every "
        "two minutes, and every 10 s while it knows none. A master starts to serve after the first answer, or after "
        "3 s without an answer. The page is http://rmqAddressServerDomain:8080/rocketmq/rmqAddressServerSubGroup. "
        "Its first line has the form of namesrvAddr.",
        important=True,
    )
    send_thread_pool_queue_capacity: int = setting(
        10000,
        "Maximum number of waiting sends. Further ones are refused with SYSTEM_BUSY.",
        unit="requests",
        minimum=1,
    )
    put_thread_pool_queue_capacity: int = setting(
        10000,
        no_effect="all sends wait in one queue, see sendThreadPoolQueueCapacity.",
        unit="requests",
    )
    pull_thread_pool_queue_capacity: int = setting(
        100000,
        "Maximum number of waiting pull requests. Further ones are refused with SYSTEM_BUSY.",
        unit="requests",
        minimum=1,
    )
    reply_thread_pool_queue_capacity: int = setting(
        10000,
        "Maximum number of waiting reply messages. Further ones are refused with SYSTEM_BUSY.",
        unit="requests",
        minimum=1,
    )
    query_thread_pool_queue_capacity: int = setting(
        20000,
        "Maximum number of waiting queries. Further ones are refused with SYSTEM_BUSY.",
        unit="requests",
        minimum=1,
    )
    client_manager_thread_pool_queue_capacity: int = setting(
        1000000,
        "Maximum number of waiting requests about clients. Further ones are refused with SYSTEM_BUSY.",
        unit="requests",
        minimum=1,
    )
    consumer_manager_thread_pool_queue_capacity: int = setting(
        1000000,
        "Maximum number of waiting requests about consumers. Further ones are refused with SYSTEM_BUSY.",
        unit="requests",
        minimum=1,
    )
    heartbeat_thread_pool_queue_capacity: int = setting(
        50000,
        "Maximum number of waiting heartbeats. Further ones are refused with SYSTEM_BUSY.",
        unit="requests",
        minimum=1,
    )
    end_transaction_pool_queue_capacity: int = setting(
        100000,
        no_effect="commits and rollbacks of transactions wait in the queue of sends, see sendThreadPoolQueueCapacity.",
        unit="requests",
        minimum=1,
    )
    filter_server_nums: int = setting(
        0,
        no_effect="the broker starts no filter server processes, also not after a remote change.",
    )
    long_polling_enable: bool = setting(
        True,
        "Whether a pull without a result waits for a message as long as its client asks. If false, it waits for "
        "shortPollingTimeMills.",
        hot=True,
    )
    short_polling_time_mills: Long = setting(
        1000,
        "Time for which a pull without a result waits for a message if longPollingEnable is false.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    max_held_pulls: int = setting(
        200000,
        "Maximum number of pulls that wait for a message at the same time. Further ones are refused, and their "
        "clients try again after some seconds.",
        minimum=1,
    )
    connection_lanes: bool = setting(
        True,
        "Whether the threads that store and read messages also read the plain connections of producers and consumers "
        "(Linux). Without it, the main thread reads all connections.",
    )
    max_held_pulls_per_connection: int = setting(
        10000,
        "Maximum number of pulls of one connection that wait for a message at the same time. A client has one "
        "waiting pull for each queue and group.",
        minimum=1,
    )
    max_suspend_timeout_millis: Long = setting(
        300000,
        "Longest time for which a pull waits for a message. It counts also if the client asks for more.",
        unit="ms",
        minimum=1000,
        hot=True,
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True,
        "Whether the consumers of a group are notified if one joins or leaves.",
        hot=True,
    )
    high_speed_mode: bool = setting(False, no_effect="Apache's code does not read it either.")
    commercial_enable: bool = setting(True, no_effect=COMMERCIAL)
    commercial_timer_count: int = setting(1, no_effect=COMMERCIAL)
    commercial_trans_count: int = setting(1, no_effect=COMMERCIAL)
    commercial_big_count: int = setting(1, no_effect=COMMERCIAL)
    commercial_base_count: int = setting(1, no_effect=COMMERCIAL)
    transfer_msg_by_heap: bool = setting(
        True,
        no_effect="messages are sent from the mapped file without a copy.",
    )
    max_delay_time: int = setting(40, no_effect="Apache's code does not read it either.")
    region_id: str = setting(
        "DefaultRegion",
        "Name of the region in the answers to sends. Producers put it into their traces.",
        hot=True,
    )
    register_broker_timeout_mills: int = setting(
        6000,
        "Timeout of a registration at a name server.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    single_master_check: bool = setting(
        True,
        "Whether a master checks for a second live master of its brokerName in the name servers. If there is one, "
        "this master refuses to start, or stops accepting messages. It accepts them again if the other one is gone "
        "and its log was empty. Apache's broker does not check.",
        hot=True,
    )
    slave_read_enable: bool = setting(
        False,
        "Whether consumers that read far behind the newest message are sent to a slave.",
        hot=True,
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        False,
        "Whether a group further behind than consumerFallbehindThreshold is refused to read.",
        hot=True,
    )
    group_guard_grace_time: Long = setting(
        120_000,
        "Time after which the log and `rocketd groups` report a fault of a consumer group: its members have "
        "different subscriptions, or a queue stays unread.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    consumer_fallbehind_threshold: Long = setting(
        16 * 1024**3,
        "Distance behind the newest message above which disableConsumeIfConsumerReadSlowly stops a group.",
        unit="bytes",
        minimum=0,
        hot=True,
    )
    broker_fast_failure_enable: bool = setting(
        True,
        "Whether requests beyond their waiting time are refused with SYSTEM_BUSY.",
        hot=True,
    )
    wait_time_mills_in_send_queue: Long = setting(
        200,
        "Longest waiting time of a send in its queue. After it the answer is SYSTEM_BUSY.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    wait_time_mills_in_pull_queue: Long = setting(
        5000,
        "Longest waiting time of a pull in its queue. After it the answer is SYSTEM_BUSY.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    wait_time_mills_in_heartbeat_queue: Long = setting(
        31000,
        "Longest waiting time of a heartbeat in its queue. After it the answer is SYSTEM_BUSY.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    wait_time_mills_in_transaction_queue: Long = setting(
        3000,
        "Longest waiting time of a commit or rollback of a transaction. After it the answer is SYSTEM_BUSY.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    start_accept_send_request_time_stamp: Long = setting(
        0,
        "Time, since 1970-01-01 UTC, before which all sends are refused.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    trace_on: bool = setting(
        True,
        "Whether answers tell producers and consumers that tracing is on.",
        hot=True,
    )
    enable_calc_filter_bit_map: bool = setting(
        False,
        "Whether SQL92 filters are evaluated once, when a message is stored. The result goes to the consume queue "
        "extension, and pulls skip other messages without reading them. Needs enableConsumeQueueExt.",
        hot=True,
    )
    expect_consumer_num_use_filter: int = setting(
        32,
        "Expected number of consumer groups with filters. It sets the size of the filter bitmap.",
        minimum=1,
    )
    max_error_rate_of_bloom_filter: int = setting(
        20,
        "Accepted share of false matches in the filter bitmap.",
        unit="%",
        minimum=1,
        maximum=99,
    )
    filter_data_clean_time_span: Long = setting(
        24 * 3600 * 1000,
        "Time for which the filter of a vanished group is kept.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    filter_support_retry: bool = setting(
        False,
        "Whether SQL92 filters also apply to messages of retry topics. The group's filter of the original topic "
        "decides.",
        hot=True,
    )
    enable_property_filter: bool = setting(
        False,
        "Whether consumers may filter by SQL92 expressions.",
        hot=True,
    )
    compressed_register: bool = setting(
        False,
        "Whether registrations at name servers are compressed.",
        hot=True,
    )
    force_register: bool = setting(
        True,
        "Whether the broker registers every period, also if nothing has changed.",
        hot=True,
    )
    register_name_server_period: int = setting(
        30000,
        "Interval of the registrations at name servers. Lower values count as 10000, higher ones than 60000 as 60000.",
        unit="ms",
    )
    transaction_time_out: Long = setting(
        6000,
        "Age of a half message at which the broker first asks its producer for the outcome.",
        unit="ms",
        minimum=0,
        hot=True,
        important=True,
    )
    transaction_check_max: int = setting(
        15,
        "Number of checks of one half message at its producer. After the last one the message is dropped.",
        minimum=1,
        hot=True,
        important=True,
    )
    transaction_check_interval: Long = setting(
        60000,
        "Interval at which the broker searches for half messages to check.",
        unit="ms",
        minimum=1,
        important=True,
    )
    acl_enable: bool = setting(
        False,
        "Whether requests need the rights of an account, or a white address. The name server never checks them.",
        important=True,
    )
    acl_strict: bool = setting(
        False,
        "Whether operations are closed that Apache 4.9.7 leaves open to every account. Batches, replies, queue "
        "locks, messages sent back and ends of transactions then need rights on their topics and group. Settings, "
        "accounts, messages by offset id, offsets of other groups and clean-up then need an admin account.",
        remote=False,
        system_property=True,
    )
    admin_without_acl: str = setting(
        PRIVATE,
        "Client addresses from which administrative writes are accepted without aclEnable: changes of topics, groups "
        "and settings, resets of offsets, clean-ups. private means loopback, private and link-local networks of IPv4 "
        "and IPv6.",
        remote=False,
        check=is_network_list,
        accepted=NETWORKS,
    )
    acl_credentials_file: str | None = setting(
        None,
        "File with the accessKey and secretKey for this broker's own requests: those of a slave, or those to a name "
        "server that checks accounts. Relative to rocketmqHome. It has the form of Apache's conf/tools.yml.",
        remote=False,
        system_property=True,
    )
    store_reply_message_enable: bool = setting(
        True,
        "Whether replies of request-reply are also stored on the broker.",
        hot=True,
    )
    enable_detail_stat: bool = setting(True, "Whether statistics are also kept for each queue.")
    auto_delete_unused_stats: bool = setting(
        False,
        no_effect="the statistics of a topic or group are always deleted together with it.",
        hot=True,
    )
    isolate_log_enable: bool = setting(False, no_effect="each broker has its own log, see twistd --logfile.")
    rmq_address_server_domain: str = setting(
        "jmenv.tbsite.net",
        "Host, or host:port, of the HTTP server for fetchNamesrvAddrByAddressServer.",
        check=lambda text: is_host(text) or is_address(text),
        accepted="a host or host:port",
        remote=False,
        aliases=("rocketmq.namesrv.domain",),
        system_property=True,
    )
    rmq_address_server_sub_group: str = setting(
        "nsaddr",
        "Last part of the path in the requests of fetchNamesrvAddrByAddressServer.",
        check=lambda text: bool(re.fullmatch(r"[!-~]+", text)),
        accepted="the end of a URL",
        remote=False,
        aliases=("rocketmq.namesrv.domain.subgroup",),
        system_property=True,
    )
    rebalance_lock_max_live_time: Long = setting(
        60000,
        "Lifetime of a consumer's lock on a queue without renewal. After it another client can take the lock.",
        name="rocketmq.broker.rebalance.lockMaxLiveTime",
        unit="ms",
        minimum=1,
        system_property=True,
    )
    acl_plain_file: str = setting(
        "conf/plain_acl.yml",
        "Account file that administration adds new accounts to. Relative to rocketmqHome.",
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
    metrics: MetricsConfig = group(MetricsConfig)
    process: ProcessConfig = group(ProcessConfig)
    client: NettyClientConfig = group(
        NettyClientConfig,
        no_effect=dict.fromkeys(
            ("client_callback_executor_threads", "client_oneway_semaphore_value", "client_async_semaphore_value"),
            WAITS,
        ),
    )
    store: MessageStoreConfig = group(MessageStoreConfig)
    remoting: RemotingConfig = group(RemotingConfig)
    tls: TlsConfig = group(TlsConfig)

    def kept_changes_file(self) -> str:
        """Return the path of the file for settings changed by requests, used without a configuration file."""
        return os.path.join(self.store.store_path_root_dir, "config", KEPT_CHANGES)

    def derive(self, given: Mapping[str, str]) -> list[str]:
        """Apply the rules of BrokerStartup to settings not given, and refuse contradictions."""
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
        self._check_ports(given)
        if "useTLS" not in given:
            self.client.use_tls = self.tls.enable if "tls.enable" in given else self.tls.server_mode == "enforcing"
        if "haTlsEnable" not in given:
            store.ha_tls_enable = store.ha_tls_mode == "enforcing"
        return warnings

    def _check_ports(self, given: Mapping[str, str]) -> None:
        """Raise ConfigError if the port for slaves is also one for clients."""
        port, ha_port = self.server.listen_port, self.store.ha_listen_port
        if ha_port in (port, port - VIP_PORT_DISTANCE) and ha_port > 0:
            used = "listenPort" if ha_port == port else f"listenPort - {VIP_PORT_DISTANCE}, which older clients use"
            raise ConfigError(
                f"{given.get('haListenPort', 'default')}: haListenPort = {ha_port}: that is {used}; set another port"
            )
