"""Where a daemon writes its logs, how much of them, and in which form."""

from rocketd.common.config import Long, setting, settings_group


@settings_group
class LogConfig:
    """Log files besides the log of twistd. Apache keeps the same in its logback files."""

    log_dir: str = setting(
        "",
        "Directory of named log files (broker.log, store.log, remoting.log and more). Empty: only twistd's log.",
        important=True,
    )
    log_level: str = setting(
        "info", "Least level that the named files get.", choices=("debug", "info", "warn", "error", "critical")
    )
    log_format: str = setting("text", "Form of the lines of the named files.", choices=("text", "json"))
    log_file_size: Long = setting(
        134217728, "Size at which a log file is closed and a new one begun.", unit="bytes", minimum=4096
    )
    log_file_count: int = setting(10, "Closed files that are kept of each name.", minimum=1, maximum=1000)
