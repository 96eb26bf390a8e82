"""Names in an archive's directory. Pure functions: nothing here accesses the disk.

::

    rocketd-archive.json                                      columns and kind of the archive, written once
    data/topic=<t>/date=<yyyy-mm-dd>/<broker>-<queue>-<first>-<last>-<random>.parquet
    data/rows/<random>.parquet                                of a stream without queues and offsets
    manifest/<20 digits>.json                                 one for each commit
    manifest/summary/<first>-<last>.json                      content of many commits, for faster opening
    staging/<writer>/...                                      files not committed yet
    lock                                                      held during a commit
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
    """Return the path of the file that makes a directory an archive."""
    return os.path.join(root, SETTINGS_NAME)


def data_dir(root: str) -> str:
    """Return the directory of all files that are, or are about to be, in a commit."""
    return os.path.join(root, "data")


def manifest_dir(root: str) -> str:
    """Return the directory of the commits."""
    return os.path.join(root, "manifest")


def staging_dir(root: str, writer: str = "") -> str:
    """Return the directory of uncommitted files: of one writer, or of all."""
    return os.path.join(root, "staging", escaped(writer)) if writer else os.path.join(root, "staging")


def lock_path(root: str) -> str:
    """Return the path of the file locked during a commit."""
    return os.path.join(root, "lock")


def job_lock_path(root: str) -> str:
    """Return the path of the file locked by the job that fills the archive with ranges of queues."""
    return os.path.join(root, "job.lock")


def escaped(name: str) -> str:
    """Return a name as part of a path, escaped like Hive: characters except letters, digits and ``-_.`` become %XX."""
    text = quote(name, safe="").replace("~", "%7E")
    return text.replace(".", "%2E") if text.strip(".") == "" else text


def date_of(time_ms: int) -> str:
    """Return the UTC day of a time in ms since 1970."""
    # Not datetime: a broker's clock may have been past the year 9999.
    return str(np.datetime64(time_ms, "ms").astype("datetime64[D]"))


def random_part() -> str:
    """Return a random text that tells two attempts at the same file apart."""
    return secrets.token_hex(6)


def data_name(topic: str, date: str, broker: str, queue_id: int, first: int, last: int, random: str) -> str:
    """Return the path within the archive of a file with the messages from one offset to another, inclusive."""
    name = f"{escaped(broker)}-{queue_id}-{first}-{last}-{random}{PARQUET}"
    return "/".join(("data", f"topic={escaped(topic)}", f"date={date}", name))


def rows_name(random: str) -> str:
    """Return the path within the archive of a file with rows that belong to no queue."""
    return f"data/rows/{random}{PARQUET}"


def numbered(number: int) -> str:
    """Return the file name of a commit."""
    return f"{number:0{NUMBER_DIGITS}d}.json"
