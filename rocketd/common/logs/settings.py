"""Place, amount and form of a daemon's logs."""

from rocketd.common.settings.declaration import Long, setting, settings_group


@settings_group
class LogConfig:
    """Log files besides the log of twistd. Apache configures them in its logback files."""

    log_dir: str = setting(
        "",
        "Directory of the named log files (broker.log, store.log, remoting.log and more). If empty, there is only "
        "twistd's log.",
        important=True,
        remote=False,
    )
    log_level: str = setting(
        "info",
        "Lowest level of the lines in the named log files.",
        choices=("debug", "info", "warn", "error", "critical"),
    )
    log_format: str = setting("text", "Format of the lines in the named log files.", choices=("text", "json"))
    log_file_size: Long = setting(
        134217728,
        "Size at which a log file is closed and a new one started.",
        unit="bytes",
        minimum=4096,
    )
    log_file_count: int = setting(
        10,
        "Number of closed log files kept for each name. The oldest one is deleted.",
        minimum=1,
        maximum=1000,
    )
