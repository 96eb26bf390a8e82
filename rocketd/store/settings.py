"""The settings of the storage engine.

Answers to MessageStoreConfig: the same keys, the same defaults, its spellings included.
"""

from rocketd.common.checks import ADDRESS, DELAYS, HOURS, is_address, is_delays, is_hours
from rocketd.common.config import Long, setting, settings_group
from rocketd.common.networks import BROKER_NETWORKS, BROKERS, is_broker_list

POOL = "there is no pool of off-heap buffers before the commit log."
DLEDGER = "there is no DLedger commit log."


@settings_group
class MessageStoreConfig:
    """Where and how messages are kept."""

    store_path_root_dir: str = setting(
        factory=lambda machine: machine.home + "/store",
        formula="~/store",
        doc="Directory of the store: consume queues, index, configuration tables, checkpoint, lock.",
        check=bool,
        accepted="a directory",
        important=True,
        remote=False,
    )
    store_path_commit_log: str = setting(
        "",
        "Directory of the commit log, or several, separated by rocketmq.broker.multiPathSplitter: files are placed in them "
        "in turn. Those fuller than rocketmq.broker.diskSpaceCleanForciblyRatio get none, as long as another is not.",
        formula="storePathRootDir/commitlog",
        important=True,
        remote=False,
    )
    store_path_d_ledger_commit_log: str | None = setting(None, no_effect=DLEDGER, important=True, remote=False)
    read_only_commit_log_store_paths: str | None = setting(
        None,
        "Directories of the commit log, separated as those of storePathCommitLog, that get no new files: those that are "
        "there are read, and deleted when they expire. Counts if storePathCommitLog names several.",
        remote=False,
    )
    mapped_file_size_commit_log: int = setting(
        1024 * 1024 * 1024,
        "Size of one commit log file. A store made with another size does not open.",
        unit="bytes",
        minimum=4096,
    )
    mapped_file_size_consume_queue: int = setting(
        300000 * 20,
        "Size of one consume queue file, rounded up to a multiple of 20, the size of an entry.",
        unit="bytes",
        minimum=20,
    )
    enable_consume_queue_ext: bool = setting(
        False,
        "Whether consume queue entries lead to an extension that holds tag hash, store time and, with "
        "enableCalcFilterBitMap, a bitmap of the filters that match. An extension that is there is read in any case.",
    )
    mapped_file_size_consume_queue_ext: int = setting(
        48 * 1024 * 1024, "Size of one file of the consume queue extension.", unit="bytes", minimum=1024
    )
    bit_map_length_consume_queue_ext: int = setting(
        64,
        no_effect="bitmaps in the consume queue extension are as long as expectConsumerNumUseFilter and "
        "maxErrorRateOfBloomFilter need.",
        unit="bits",
        minimum=8,
    )
    flush_interval_commit_log: int = setting(
        500,
        "How often the commit log is flushed to disk under ASYNC_FLUSH.",
        unit="ms",
        minimum=1,
        hot=True,
        important=True,
    )
    commit_interval_commit_log: int = setting(200, no_effect=POOL, unit="ms", important=True)
    use_reentrant_lock_when_put_message: bool = setting(
        True, no_effect="one thread appends, so there is no lock to choose."
    )
    flush_commit_log_timed: bool = setting(
        True,
        no_effect="the flush thread always waits out its interval or a request.",
        important=True,
    )
    flush_interval_consume_queue: int = setting(
        1000, "How often consume queues are flushed to disk.", unit="ms", minimum=1, hot=True
    )
    clean_resource_interval: int = setting(
        10000,
        "How often the store looks for files to delete, at most ten commit log files each time; first a minute after "
        "the start.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    delete_commit_log_files_interval: int = setting(
        100, "Pause between the deletions of two commit log files.", unit="ms", minimum=0, hot=True
    )
    delete_consume_queue_files_interval: int = setting(
        100, "Pause after a consume queue of which files were deleted.", unit="ms", minimum=0, hot=True
    )
    destroy_maped_file_interval_forcibly: int = setting(
        120000,
        "A deleted commit log file that readers still hold after so long is named in a warning: its room on the disk is "
        "not free until they let go. No file is ever unmapped under a reader.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    redelete_hanged_file_interval: int = setting(
        120000,
        "How often the store looks whether readers still hold deleted files, and when it tries again to delete one that "
        "could not be deleted.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    delete_when: str = setting(
        "04",
        "Hours of the day, local time, in which expired files are deleted: separated by semicolons.",
        check=is_hours,
        accepted=HOURS,
        hot=True,
        important=True,
    )
    disk_max_used_space_ratio: int = setting(
        75,
        "Share of the disk of commit log or consume queues above which expired files are deleted at any hour. Less than "
        "10 counts as 10, more than 95 as 95.",
        unit="%",
        hot=True,
    )
    file_reserved_time: int = setting(
        72,
        "How long a commit log file is kept after its last change.",
        unit="hours",
        minimum=0,
        hot=True,
        important=True,
    )
    put_msg_index_hight_water: int = setting(600000, no_effect="Apache's code does not read it either.")
    max_message_size: int = setting(
        4 * 1024 * 1024, "Longest body of a message that is taken.", unit="bytes", minimum=1, hot=True
    )
    check_crc_on_recover: bool = setting(
        True, "Whether recovery at start checks the body checksum of every record.", name="checkCRCOnRecover"
    )
    flush_commit_log_least_pages: int = setting(
        4,
        "A flush by interval is skipped while fewer pages than this are unflushed.",
        unit="4 KiB pages",
        minimum=0,
        hot=True,
    )
    commit_commit_log_least_pages: int = setting(4, no_effect=POOL, unit="4 KiB pages")
    flush_least_pages_when_warm_maped_file: int = setting(
        4096,
        "With SYNC_FLUSH and warmMapedFileEnable, the zeros of a new file are put on the disk each so many pages.",
        unit="4 KiB pages",
        minimum=1,
    )
    flush_consume_queue_least_pages: int = setting(
        2,
        "A flush of a consume queue is skipped while fewer pages are unflushed.",
        unit="4 KiB pages",
        minimum=0,
        hot=True,
    )
    flush_commit_log_thorough_interval: int = setting(
        10000,
        "After so long the commit log is flushed however few pages are unflushed.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    commit_commit_log_thorough_interval: int = setting(200, no_effect=POOL, unit="ms")
    flush_consume_queue_thorough_interval: int = setting(
        60000,
        "After so long consume queues are flushed however few pages are unflushed, and the checkpoint is written.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        256 * 1024,
        "Most bytes that one pull returns of messages that are in memory.",
        unit="bytes",
        minimum=1,
        hot=True,
        important=True,
    )
    max_transfer_count_on_message_in_memory: int = setting(
        32, "Most messages that one pull returns of those in memory.", minimum=1, hot=True, important=True
    )
    max_transfer_bytes_on_message_in_disk: int = setting(
        64 * 1024,
        "Most bytes that one pull returns of messages that must be read from disk.",
        unit="bytes",
        minimum=1,
        hot=True,
        important=True,
    )
    max_transfer_count_on_message_in_disk: int = setting(
        8,
        "Most messages that one pull returns of those that must be read from disk.",
        minimum=1,
        hot=True,
        important=True,
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        "Share of the machine's memory by which a message may lie behind the newest and still count as in memory.",
        formula="40; 30 on a slave",
        unit="%",
        minimum=0,
        maximum=100,
        hot=True,
        important=True,
    )
    message_index_enable: bool = setting(
        True, "Whether messages are indexed by key, for queries.", hot=True, important=True
    )
    max_hash_slot_num: int = setting(5000000, "Hash slots of one index file.", minimum=1)
    max_index_num: int = setting(20000000, "Entries of one index file.", minimum=2)
    max_msgs_num_batch: int = setting(64, "Most messages that one query by key returns.", minimum=1, hot=True)
    message_index_safe: bool = setting(
        False, "Whether recovery after a crash starts no later than where the index was flushed.", important=True
    )
    ha_listen_port: int = setting(
        10912,
        "TCP port for replication to slaves.",
        formula="listenPort + 1",
        minimum=0,
        maximum=65535,
    )
    ha_send_heartbeat_interval: int = setting(
        5000, "How often master and slave tell each other that they are there.", unit="ms", minimum=1, hot=True
    )
    ha_housekeeping_interval: int = setting(
        20000,
        "A replication connection on which nothing was heard for so long is closed.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    ha_allowed_addresses: str = setting(
        BROKERS,
        "The addresses from which slaves may copy the log. brokers means the brokers of this brokerName that the name "
        "servers know, and slaves that show a certificate; without name servers, private networks.",
        check=is_broker_list,
        accepted=BROKER_NETWORKS,
        hot=True,
    )
    ha_identify_timeout: int = setting(
        15000,
        "A replication connection that has not made its first report after so long is closed.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    ha_max_unidentified: int = setting(
        64,
        "Replication connections that have not made their first report. One more closes the oldest of the address that "
        "has most of them.",
        minimum=1,
        hot=True,
    )
    ha_max_slaves: int = setting(64, "Slaves that may be connected at a time.", minimum=1, hot=True)
    ha_max_slaves_per_address: int = setting(
        8, "Slaves that may be connected at a time from one address.", minimum=1, hot=True
    )
    ha_tls_mode: str = setting(
        "disabled",
        "Whether slaves may connect by TLS: disabled refuses it, permissive takes both on one port, enforcing refuses "
        "plain connections. They must show a certificate. Needs tls.server.keyPath and tls.server.certPath.",
        choices=("disabled", "permissive", "enforcing"),
    )
    ha_tls_trust_cert_path: str | None = setting(
        None,
        "Certificates, PEM, that vouch for slaves.",
        formula="tls.server.trustCertPath",
        remote=False,
    )
    ha_tls_enable: bool = setting(
        False,
        "Whether this broker, as a slave, connects to its master by TLS, with its tls.client.* certificate. The master "
        "must be a rocketd broker.",
        formula="whether haTlsMode is enforcing",
    )
    ha_transfer_batch_size: int = setting(
        32 * 1024, "Most bytes of the commit log sent to a slave in one piece.", unit="bytes", minimum=1
    )
    ha_master_address: str | None = setting(
        None,
        "host:port of the master's replication port. Unset, a slave learns it from the name server.",
        check=is_address,
        accepted=ADDRESS,
        hot=True,
        important=True,
    )
    ha_slave_fallbehind_max: int = setting(
        256 * 1024 * 1024,
        "A slave further behind than this does not count as available to a SYNC_MASTER.",
        unit="bytes",
        minimum=0,
        hot=True,
    )
    broker_role: str = setting(
        "ASYNC_MASTER",
        "Part of this broker in replication: SYNC_MASTER answers a send when a slave has it, ASYNC_MASTER at once.",
        choices=("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"),
        important=True,
    )
    flush_disk_type: str = setting(
        "ASYNC_FLUSH",
        "SYNC_FLUSH answers a send when it is on disk, ASYNC_FLUSH as soon as it is in the file.",
        choices=("ASYNC_FLUSH", "SYNC_FLUSH"),
        important=True,
    )
    sync_flush_timeout: int = setting(
        5000,
        "How long a send waits for the disk before it is answered FLUSH_DISK_TIMEOUT.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    slave_timeout: int = setting(
        2000,
        "How long a send waits for the slave before it is answered FLUSH_SLAVE_TIMEOUT. Apache's default is 3000, when "
        "its clients give up too, and send again.",
        unit="ms",
        minimum=1,
        hot=True,
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of delay levels 1, 2, 3 ...: numbers with s, m, h or d, separated by blanks.",
        check=is_delays,
        accepted=DELAYS,
    )
    timer_wheel_enable: bool = setting(
        True,
        "Whether messages may have a time of delivery of their own (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC), as "
        "in RocketMQ 5.x. Without, those that wait go on waiting, and new ones are refused.",
    )
    timer_max_delay_sec: int = setting(
        3600 * 24 * 3,
        "How far ahead such a time may lie. Messages that wait for longer than half of fileReservedTime are stored anew, "
        "so that their log files can be deleted.",
        unit="s",
        minimum=0,
        hot=True,
    )
    flush_delay_offset_interval: Long = setting(
        10000, "How often the progress of delayed delivery is written.", unit="ms", minimum=1
    )
    clean_file_forcibly_enable: bool = setting(
        True,
        "Whether commit log files that have not expired are deleted when the disk is fuller than "
        "rocketmq.broker.diskSpaceCleanForciblyRatio.",
        hot=True,
        important=True,
    )
    warm_maped_file_enable: bool = setting(
        False,
        "Whether the next commit log file has its room on the disk reserved and is filled with zeros in memory before it "
        "is needed. One that somebody waits for is handed out as soon as its room is reserved.",
    )
    offset_check_in_slave: bool = setting(
        False, "Whether a slave corrects offsets that clients ask for beyond its own queues.", hot=True
    )
    debug_lock_enable: bool = setting(False, no_effect="there is no append lock to watch.")
    duplication_enable: bool = setting(False, no_effect="the store never dispatches one message twice on purpose.")
    disk_fall_recorded: bool = setting(
        True, no_effect="`rocketd lag` and mqadmin's consumerProgress compute how far behind a group reads.", hot=True
    )
    os_page_cache_busy_time_out_mills: Long = setting(
        1000,
        "An append that takes longer than this makes the broker answer SYSTEM_BUSY.",
        unit="ms",
        minimum=0,
        hot=True,
    )
    default_query_max_num: int = setting(
        32, "Messages that a query by key returns when it does not say how many.", minimum=1, hot=True
    )
    transient_store_pool_enable: bool = setting(False, no_effect=POOL, important=True)
    transient_store_pool_size: int = setting(5, no_effect=POOL)
    fast_fail_if_no_buffer_in_store_pool: bool = setting(False, no_effect=POOL)
    enable_d_leger_commit_log: bool = setting(
        False, "There is no DLedger commit log: true is refused at start, rather than run without its replicas."
    )
    d_leger_group: str | None = setting(None, no_effect=DLEDGER)
    d_leger_peers: str | None = setting(None, no_effect=DLEDGER)
    d_leger_self_id: str | None = setting(None, no_effect=DLEDGER)
    preferred_leader_id: str | None = setting(None, no_effect=DLEDGER)
    is_enable_batch_push: bool = setting(
        False, no_effect="Apache's code does not read it either.", aliases=("enableBatchPush",)
    )
    enable_schedule_message_stats: bool = setting(
        True, "Whether messages that pass through the delay topic are counted.", hot=True
    )
    enable_lmq: bool = setting(False, "Whether light message queues (names that begin with %LMQ%) are served.")
    enable_multi_dispatch: bool = setting(
        False,
        "Whether a message may name further queues, which begin with %LMQ%, in its property INNER_MULTI_DISPATCH.",
    )
    max_lmq_consume_queue_num: int = setting(20000, "Most light message queues.", minimum=0, hot=True)
    enable_schedule_async_deliver: bool = setting(
        False,
        "Whether up to scheduleAsyncDeliverMaxPendingLimit delayed messages of a level are stored by one write, rather than "
        "256. Their order is kept either way, and none is waited for alone.",
    )
    schedule_async_deliver_max_pending_limit: int = setting(
        2000, "Most delayed messages of a level stored by one write, with enableScheduleAsyncDeliver.", minimum=1
    )
    schedule_async_deliver_max_resend_num2_blocked: int = setting(
        3,
        no_effect="what cannot be delivered is tried again ten times a second, and its level waits.",
        minimum=0,
    )
    disk_space_warning_level_ratio: float = setting(
        0.90,
        "Share of the disk of commit log or consume queues above which the broker refuses to store.",
        name="rocketmq.broker.diskSpaceWarningLevelRatio",
        minimum=0.0,
        maximum=1.0,
        system_property=True,
    )
    disk_space_clean_forcibly_ratio: float = setting(
        0.85,
        "Share of the disk above which the oldest commit log files are deleted although they have not expired, if "
        "cleanFileForciblyEnable. As with Apache, only when diskMaxUsedSpaceRatio is exceeded too, or in an hour of "
        "deleteWhen.",
        name="rocketmq.broker.diskSpaceCleanForciblyRatio",
        minimum=0.0,
        maximum=1.0,
        system_property=True,
    )
    multi_path_splitter: str = setting(
        ",",
        "What separates several directories in storePathCommitLog and readOnlyCommitLogStorePaths. A plain text; for "
        "Apache's broker it is a regular expression.",
        name="rocketmq.broker.multiPathSplitter",
        remote=False,
        system_property=True,
    )

    def __post_init__(self) -> None:
        """Derive the paths that were not given."""
        self.store_path_commit_log = self.store_path_commit_log or self.store_path_root_dir + "/commitlog"
