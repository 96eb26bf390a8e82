"""Names of an archive's directory. Pure functions: nothing here touches the disk.

::

    rocketd-archive.json                                      what the archive holds, written once
    data/topic=<t>/date=<yyyy-mm-dd>/<broker>-<queue>-<first>-<last>-<random>.parquet
    data/rows/<random>.parquet                                of a stream that has no queues and offsets
    manifest/<20 digits>.json                                 one for each commit
    manifest/summary/<first>-<last>.json                      the same of many commits, to open it faster
    staging/<writer>/...                                      what no commit names yet
    lock                                                      held by whoever commits
"""

import os
import secrets
from urllib.parse import quote

import numpy as np

FORMAT_VERSION = 1
SETTINGS_NAME = "rocketd-archive.json"
NUMBER_DIGITS = 20
PARQUET = ".parquet"


def settings_path(root: str) -> str:
    """The file that makes a directory an archive."""
    return os.path.join(root, SETTINGS_NAME)


def data_dir(root: str) -> str:
    """Directory of all files that are, or are about to be, in a commit."""
    return os.path.join(root, "data")


def manifest_dir(root: str) -> str:
    """Directory of the commits."""
    return os.path.join(root, "manifest")


def staging_dir(root: str, writer: str = "") -> str:
    """Directory of what is not committed yet: that of one writer, or of all."""
    return os.path.join(root, "staging", escaped(writer)) if writer else os.path.join(root, "staging")


def lock_path(root: str) -> str:
    """File that is locked while a commit is made."""
    return os.path.join(root, "lock")


def job_lock_path(root: str) -> str:
    """File that is locked by the job that fills the archive with ranges of queues."""
    return os.path.join(root, "job.lock")


def escaped(name: str) -> str:
    """A name as part of a path, in the way of Hive: what is not a letter, a digit or one of ``-_.`` becomes %XX."""
    text = quote(name, safe="").replace("~", "%7E")
    return text.replace(".", "%2E") if text.strip(".") == "" else text


def date_of(time_ms: int) -> str:
    """The day of a time in ms since 1970, in UTC."""
    # Not datetime: a broker's clock may have been behind the year 9999.
    return str(np.datetime64(time_ms, "ms").astype("datetime64[D]"))


def random_part() -> str:
    """What tells two attempts to write the same thing apart."""
    return secrets.token_hex(6)


def data_name(topic: str, date: str, broker: str, queue_id: int, first: int, last: int, random: str) -> str:
    """Path within the archive of a file with the messages from one offset to another, which it includes."""
    name = f"{escaped(broker)}-{queue_id}-{first}-{last}-{random}{PARQUET}"
    return "/".join(("data", f"topic={escaped(topic)}", f"date={date}", name))


def rows_name(random: str) -> str:
    """Path within the archive of a file with rows that belong to no queue."""
    return f"data/rows/{random}{PARQUET}"


def numbered(number: int) -> str:
    """Name of a commit's file."""
    return f"{number:0{NUMBER_DIGITS}d}.json"
