"""Settings of the storage engine.

Counterpart: `MessageStoreConfig` (Apache), with the same keys, defaults and spellings.
"""

from rocketd.common.networks import LOOPBACK, NETWORKS, is_network_list
from rocketd.common.settings.checks import ADDRESS, DELAYS, HOURS, is_address, is_delays, is_hours
from rocketd.common.settings.declaration import Long, setting, settings_group

POOL = "the commit log has no pool of off-heap buffers."
DLEDGER = "rocketd has no DLedger commit log."


@settings_group
class MessageStoreConfig:
    """Place and manner of message storage."""

    store_path_root_dir: str = setting(
        factory=lambda machine: machine.home + "/store",
        formula="~/store",
        doc="Directory of the store: consume queues, index, configuration tables, checkpoint, lock file.",
        check=bool,
        accepted="a directory",
        important=True,
        remote=False,
    )
    store_path_commit_log: str = setting(
        "",
        "Directory of the commit log. It may be several, separated by rocketmq.broker.multiPathSplitter; new files "
        "go to them in turn. A directory gets no files while its disk is fuller than "
        "rocketmq.broker.diskSpaceCleanForciblyRatio and another directory's disk is not.",
        formula="storePathRootDir/commitlog",
        important=True,
        remote=False,
    )
    store_path_d_ledger_commit_log: str | None = setting(None, no_effect=DLEDGER, important=True, remote=False)
    read_only_commit_log_store_paths: str | None = setting(
        None,
        "Further directories of the commit log, separated as in storePathCommitLog. They get no new files. Their "
        "files are read, and deleted if they have expired. Ignored unless storePathCommitLog names several "
        "directories.",
        remote=False,
    )
    mapped_file_size_commit_log: int = setting(
        1024 * 1024 * 1024,
        "Size of one commit log file. The broker does not open a store created with another size.",
        unit="bytes",
        minimum=4096,
    )
    mapped_file_size_consume_queue: int = setting(
        300000 * 20,
        "Size of one consume queue file. It is rounded up to a multiple of 20, the size of an entry.",
        unit="bytes",
        minimum=20,
    )
    enable_consume_queue_ext: bool = setting(
        False,
        "Whether consume queue entries refer to an extension. It has the tag hash, the store time and, with "
        "enableCalcFilterBitMap, a bitmap of the matching filters. An existing extension is read in any case.",
    )
    mapped_file_size_consume_queue_ext: int = setting(
        48 * 1024 * 1024,
        "Size of one file of the consume queue extension.",
        unit="bytes",
        minimum=1024,
    )
    bit_map_length_consume_queue_ext: int = setting(
        64,
        no_effect="the length of a bitmap in the consume queue extension follows from expectConsumerNumUseFilter and "
        "maxErrorRateOfBloomFilter.",
        unit="bits",
        minimum=8,
    )
    flush_interval_commit_log: int = setting(
        500,
        "Interval at which the commit log is flushed to disk under ASYNC_FLUSH.",
        unit="ms",
        minimum=1,
        hot=True,
        important=True,
    )
    commit_interval_commit_log: int = setting(200, no_effect=POOL, unit="ms", important=True)
    use_reentrant_lock_when_put_message: bool = setting(
        True,
        no_effect="one thread appends messages, without a lock.",
    )
    flush_commit_log_timed: bool = setting(
        True,
        no_effect="the flush thread always waits for its interval or for a request.",
        important=True,
    )
    flush_interval_consume_queue: int = setting(
        1000,
        "Interval at which consume queues are flushed to disk.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    clean_resource_interval: int = setting(
        10000,
        "Interval at which the store searches for expired files. It deletes at most ten commit log files each time. "
        "The first search is a minute after the start.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    delete_commit_log_files_interval: int = setting(
        100,
        "Pause between the deletions of two commit log files.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    delete_consume_queue_files_interval: int = setting(
        100,
        "Pause after the deletion of a consume queue's files.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    destroy_maped_file_interval_forcibly: int = setting(
        120000,
        "Time after which a warning names a deleted commit log file still in use by readers. Its disk space is free "
        "only after they release it. A file is never unmapped while in use.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    redelete_hanged_file_interval: int = setting(
        120000,
        "Interval at which the store checks deleted files for readers, and tries again to delete files after a "
        "failure.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    delete_when: str = setting(
        "04",
        "Hours of the day, in local time, at which expired files are deleted. Separate them by semicolons.",
        check=is_hours,
        accepted=HOURS,
        hot=True,
        important=True,
    )
    disk_max_used_space_ratio: int = setting(
        75,
        "Used share of the disk of commit log or consume queues above which expired files are deleted at any hour. "
        "Less than 10 counts as 10, more than 95 as 95.",
        unit="%",
        hot=True,
    )
    file_reserved_time: int = setting(
        72,
        "Time for which a commit log file is kept after its last change.",
        unit="hours",
        minimum=0,
        hot=True,
        important=True,
    )
    put_msg_index_hight_water: int = setting(600000, no_effect="Apache's code does not read it either.")
    max_message_size: int = setting(
        4 * 1024 * 1024,
        "Maximum size of a message's body. A longer message is refused.",
        unit="bytes",
        minimum=1,
        hot=True,
    )
    check_crc_on_recover: bool = setting(
        True,
        "Whether the recovery at start checks the body checksum of each record.",
        name="checkCRCOnRecover",
    )
    flush_commit_log_least_pages: int = setting(
        4,
        "Number of unflushed pages below which a flush of the commit log by interval is skipped.",
        unit="4 KiB pages",
        minimum=0,
        hot=True,
    )
    commit_commit_log_least_pages: int = setting(4, no_effect=POOL, unit="4 KiB pages")
    flush_least_pages_when_warm_maped_file: int = setting(
        4096,
        "Number of pages after which the zeros of a new commit log file are flushed to disk. Read with SYNC_FLUSH "
        "and warmMapedFileEnable only.",
        unit="4 KiB pages",
        minimum=1,
    )
    flush_consume_queue_least_pages: int = setting(
        2,
        "Number of unflushed pages below which a flush of a consume queue is skipped.",
        unit="4 KiB pages",
        minimum=0,
        hot=True,
    )
    flush_commit_log_thorough_interval: int = setting(
        10000,
        "Time after which the commit log is flushed regardless of flushCommitLogLeastPages.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    commit_commit_log_thorough_interval: int = setting(200, no_effect=POOL, unit="ms")
    flush_consume_queue_thorough_interval: int = setting(
        60000,
        "Time after which consume queues are flushed regardless of flushConsumeQueueLeastPages, and the checkpoint "
        "is written.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        256 * 1024,
        "Maximum total size of the messages in one pull's answer, for messages in memory.",
        unit="bytes",
        minimum=1,
        hot=True,
        important=True,
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32,
        "Maximum number of messages in one pull's answer, for messages in memory.",
        minimum=1,
        hot=True,
        important=True,
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        64 * 1024,
        "Maximum total size of the messages in one pull's answer, for messages read from disk.",
        unit="bytes",
        minimum=1,
        hot=True,
        important=True,
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8,
        "Maximum number of messages in one pull's answer, for messages read from disk.",
        minimum=1,
        hot=True,
        important=True,
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        "Size of the log's newest part, as a share of the machine's memory. Messages in this part count as in "
        "memory, older ones as on disk.",
        formula="40; 30 on a slave",
        unit="%",
        minimum=0,
        maximum=100,
        hot=True,
        important=True,
    )
    message_index_enable: bool = setting(
        True,
        "Whether messages are indexed by key, for queries.",
        hot=True,
        important=True,
    )
    max_hash_slot_num: int = setting(5000000, "Number of hash slots in one index file.", minimum=1)
    max_index_num: int = setting(20000000, "Number of entries in one index file.", minimum=2)
    max_msgs_num_batch: int = setting(
        64,
        "Maximum number of messages in the answer to one query by key.",
        minimum=1,
        hot=True,
    )
    message_index_safe: bool = setting(
        False,
        "Whether the recovery after a crash starts no later than the last flush of the index.",
        important=True,
    )
    ha_listen_port: int = setting(
        10912,
        "TCP port for replication to slaves.",
        formula="listenPort + 1",
        minimum=0,
        maximum=65535,
    )
    ha_send_heartbeat_interval: int = setting(
        5000,
        "Interval of the heartbeats between master and slave.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    ha_housekeeping_interval: int = setting(
        20000,
        "Time after which a replication connection without incoming data is closed.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    ha_allowed_addresses: str = setting(
        LOOPBACK,
        "Addresses of the other brokers of this brokerName: only they may copy the log, be followed by a slave, or make "
        "a master step down. loopback means this machine with all its addresses. A host with a valid certificate "
        "(haTlsMode) counts as listed, and so does the host of haMasterAddress.",
        check=is_network_list,
        accepted=NETWORKS,
        hot=True,
    )
    ha_identify_timeout: int = setting(
        15000,
        "Time after which a replication connection is closed if the slave has not sent its first report.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    ha_max_unidentified: int = setting(
        64,
        "Maximum number of replication connections before their first report. One more closes the oldest connection "
        "of the address with the most of them.",
        minimum=1,
        hot=True,
    )
    ha_max_slaves: int = setting(
        64,
        "Maximum number of slaves connected at the same time. Further ones are refused.",
        minimum=1,
        hot=True,
    )
    ha_max_slaves_per_address: int = setting(
        8,
        "Maximum number of slaves connected at the same time from one address. Further ones are refused.",
        minimum=1,
        hot=True,
    )
    ha_tls_mode: str = setting(
        "disabled",
        "TLS for slaves: disabled refuses it, permissive accepts TLS and plain connections on one port, enforcing "
        "refuses plain connections. Slaves must show a certificate. Needs tls.server.keyPath and "
        "tls.server.certPath.",
        choices=("disabled", "permissive", "enforcing"),
    )
    ha_tls_trust_cert_path: str | None = setting(
        None,
        "File with the CA certificates, in PEM, for checking slaves.",
        formula="tls.server.trustCertPath",
        remote=False,
    )
    ha_tls_enable: bool = setting(
        False,
        "Whether this broker, as a slave, connects to its master by TLS, with its tls.client.* certificate. The "
        "master must be a rocketd broker.",
        formula="true if haTlsMode is enforcing",
    )
    ha_transfer_batch_size: int = setting(
        32 * 1024,
        "Maximum size of one piece of the commit log on its way to a slave.",
        unit="bytes",
        minimum=1,
    )
    ha_master_address: str | None = setting(
        None,
        "host:port of the master for replication. If unset, a slave gets it from the name server.",
        check=is_address,
        accepted=ADDRESS,
        hot=True,
        important=True,
    )
    ha_slave_fallbehind_max: int = setting(
        256 * 1024 * 1024,
        "Distance behind the master above which a slave does not count as available for SYNC_MASTER.",
        unit="bytes",
        minimum=0,
        hot=True,
    )
    broker_role: str = setting(
        "ASYNC_MASTER",
        "Role of this broker in replication. SYNC_MASTER answers a send after a slave has it, ASYNC_MASTER at once.",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        important=True,
    )
    flush_disk_type: str = setting(
        "ASYNC_FLUSH",
        "Flush of a message before the answer to its send. SYNC_FLUSH answers after the flush to disk, ASYNC_FLUSH "
        "after the write to the file.",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
        important=True,
    )
    sync_flush_timeout: int = setting(
        5000,
        "Timeout of the flush to disk for a send. After it the answer is FLUSH_DISK_TIMEOUT.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    slave_timeout: int = setting(
        2000,
        "Timeout of the replication to a slave for a send. After it the answer is FLUSH_SLAVE_TIMEOUT. Apache's "
        "default is 3000. Its clients give up after the same time, and send again.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the delay levels 1, 2, 3 and so on: numbers with s, m, h or d, separated by blanks.",
        check=is_delays,
        accepted=DELAYS,
    )
    timer_wheel_enable: bool = setting(
        True,
        "Whether messages may set their delivery time (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC), as in "
        "RocketMQ 5.x. If false, such messages are refused, and those stored before keep waiting.",
    )
    timer_max_delay_sec: int = setting(
        3600 * 24 * 3,
        "Maximum time until the delivery of a message. Longer ones are refused. Messages delayed by more than half "
        "of fileReservedTime are stored anew, and their old log files can be deleted.",
        unit="s",
        minimum=0,
        hot=True,
    )
    flush_delay_offset_interval: Long = setting(
        10000,
        "Interval at which the progress of delayed delivery is written to disk.",
        unit="ms",
        minimum=1,
    )
    clean_file_forcibly_enable: bool = setting(
        True,
        "Whether commit log files are deleted before they expire if the disk is fuller than "
        "rocketmq.broker.diskSpaceCleanForciblyRatio.",
        hot=True,
        important=True,
    )
    warm_maped_file_enable: bool = setting(
        False,
        "Whether the next commit log file is prepared before use: its disk space is reserved, and it is filled with "
        "zeros in memory. An append already waiting for the file gets it after the reservation.",
    )
    offset_check_in_slave: bool = setting(
        False,
        "Whether a slave corrects the offsets of pulls beyond its own queues. If false, the client asks the master.",
        hot=True,
    )
    debug_lock_enable: bool = setting(False, no_effect="rocketd has no append lock.")
    duplication_enable: bool = setting(False, no_effect="the store dispatches each message once.")
    disk_fall_recorded: bool = setting(
        True,
        no_effect="`rocketd lag` and mqadmin's consumerProgress compute the lag of a group.",
        hot=True,
    )
    os_page_cache_busy_time_out_mills: Long = setting(
        1000,
        "Duration of an append above which the broker refuses sends with SYSTEM_BUSY.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    default_query_max_num: int = setting(
        32,
        "Number of messages in the answer to a query by key without a number.",
        minimum=1,
        hot=True,
    )
    transient_store_pool_enable: bool = setting(False, no_effect=POOL, important=True)
    transient_store_pool_size: int = setting(5, no_effect=POOL)
    fast_fail_if_no_buffer_in_store_pool: bool = setting(False, no_effect=POOL)
    enable_d_leger_commit_log: bool = setting(
        False,
        "Must be false, because rocketd has no DLedger commit log. With true, the start fails instead of running "
        "without replicas.",
    )
    d_leger_group: str | None = setting(None, no_effect=DLEDGER)
    d_leger_peers: str | None = setting(None, no_effect=DLEDGER)
    d_leger_self_id: str | None = setting(None, no_effect=DLEDGER)
    preferred_leader_id: str | None = setting(None, no_effect=DLEDGER)
    is_enable_batch_push: bool = setting(
        False, no_effect="Apache's code does not read it either.", aliases=("enableBatchPush",)
    )
    enable_schedule_message_stats: bool = setting(
        True,
        "Whether messages passing through the delay topic are counted in the statistics.",
        hot=True,
    )
    enable_lmq: bool = setting(
        False,
        "Whether light message queues are served. Their names begin with %LMQ%.",
    )
    enable_multi_dispatch: bool = setting(
        False,
        "Whether a message may name further queues, beginning with %LMQ%, in its property INNER_MULTI_DISPATCH.",
    )
    max_lmq_consume_queue_num: int = setting(
        20000,
        "Maximum number of light message queues. Beyond it, messages that name further queues are refused.",
        minimum=0,
        hot=True,
    )
    enable_schedule_async_deliver: bool = setting(
        False,
        "Whether one write stores up to scheduleAsyncDeliverMaxPendingLimit delayed messages of a level. If false, "
        "it stores up to 256. Their order is kept in both cases.",
    )
    schedule_async_deliver_max_pending_limit: int = setting(
        2000,
        "Maximum number of delayed messages of a level in one write, with enableScheduleAsyncDeliver.",
        minimum=1,
    )
    schedule_async_deliver_max_resend_num2_blocked: int = setting(
        3,
        no_effect="a failed delivery is tried again ten times a second, and its delay level waits.",
        minimum=0,
    )
    disk_space_warning_level_ratio: float = setting(
        0.90,
        "Used share of the disk of commit log or consume queues above which the broker refuses messages.",
        name="rocketmq.broker.diskSpaceWarningLevelRatio",
        minimum=0.0,
        maximum=1.0,
        system_property=True,
    )
    disk_space_clean_forcibly_ratio: float = setting(
        0.85,
        "Used share of the disk above which cleanFileForciblyEnable deletes the oldest commit log files before they "
        "expire. As in Apache's broker, this also needs a share above diskMaxUsedSpaceRatio, or an hour of "
        "deleteWhen.",
        name="rocketmq.broker.diskSpaceCleanForciblyRatio",
        minimum=0.0,
        maximum=1.0,
        system_property=True,
    )
    multi_path_splitter: str = setting(
        ",",
        "Separator of the directories in storePathCommitLog and readOnlyCommitLogStorePaths. It is plain text. "
        "Apache's broker takes it as a regular expression.",
        name="rocketmq.broker.multiPathSplitter",
        remote=False,
        system_property=True,
    )

    def __post_init__(self) -> None:
        """Derive the paths without a value."""
        self.store_path_commit_log = self.store_path_commit_log or self.store_path_root_dir + "/commitlog"
