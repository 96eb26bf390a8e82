"""Facts about a broker that an archive records besides messages, so that a restore can bring them back."""

import contextlib
import json
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rocketd.remoting.wire.codes import RequestCode
from rocketd.spark.errors import ClusterError
from rocketd.spark.ranges import Catalog, Queue
from rocketd.spark.store.log_directories import log_directories
from rocketd.store.base.filesystem import RealFileSystem
from rocketd.store.base.layout import consume_queue_dir, is_mapped_file_name
from rocketd.store.base.table_journal import read_journal

if TYPE_CHECKING:
    from rocketd.spark.wire.cluster import ClusterClient


def broker_facts(catalog: Catalog, queues: Iterable[Queue], store: str = "", commit_log: str = "") -> dict[str, Any]:
    """Return for each broker the number of queues of its topics, and for a store's files also their sizes and tables."""
    facts: dict[str, dict[str, Any]] = {}
    topics = {queue.topic for queue in queues}
    for topic in sorted(topics):
        for queue in catalog.queues(topic):
            numbers = facts.setdefault(queue.broker, {"queues": {}})["queues"]
            numbers[topic] = max(numbers.get(topic, 0), queue.queue_id + 1)
    if store:
        for said in facts.values():
            said |= _of_store(store, log_directories(store, commit_log)[0], topics)
    return facts


def _of_store(root: str, commit_log: str, topics: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    size = _log_file_size(commit_log)
    if size:
        found["commitLogFileSize"] = size
    size = _queue_file_size(root, topics)
    if size:
        found["queueFileSize"] = size
    table = _table(root, "topics", "topicConfigTable")
    if table is not None:
        found["topics"] = {name: config for name, config in table.items() if name in topics}
    table = _table(root, "consumerOffset", "offsetTable")
    if table is not None:
        found["consumerOffset"] = {key: value for key, value in table.items() if key.partition("@")[0] in topics}
    table = _table(root, "delayOffset", "offsetTable")
    if table is not None:
        found["delayOffset"] = table
    return found


_SETTINGS = {
    "mappedFileSizeCommitLog": "commitLogFileSize",
    "mappedFileSizeConsumeQueue": "queueFileSize",
    "maxHashSlotNum": "indexSlots",
    "maxIndexNum": "indexEntries",
}


def live_facts(cluster: "ClusterClient", broker: str) -> dict[str, int]:
    """Return the sizes from a running broker's settings; empty if the broker refuses the question."""
    try:
        body = cluster.ask(broker, RequestCode.GET_BROKER_CONFIG).body
    except ClusterError:
        return {}
    found = {}
    for line in (body or b"").decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip() in _SETTINGS and value.strip().isdigit():
            found[_SETTINGS[name.strip()]] = int(value)
    return found


def _log_file_size(directory: str) -> int:
    """Return the length of the files of a commit log, 0 without files. Each file has its full length from the start."""
    try:
        names = sorted(name for name in os.listdir(directory) if is_mapped_file_name(name))
        if len(names) > 1:
            return int(names[1]) - int(names[0])
        return os.stat(os.path.join(directory, names[0])).st_size if names else 0
    except OSError:
        return 0


def _queue_file_size(root: str, topics: set[str]) -> int:
    """Return the length of the files of consume queues, 0 without files."""
    for topic in sorted(topics):
        for folder, _, names in os.walk(os.path.join(consume_queue_dir(root), topic)):
            for name in filter(is_mapped_file_name, names):
                with contextlib.suppress(FileNotFoundError):  # a running broker removes old files
                    return os.stat(os.path.join(folder, name)).st_size
    return 0


def _table(root: str, name: str, key: str) -> dict[str, Any] | None:
    """Return a table of a broker's configuration, or None if unreadable. Apache writes numeric keys without quotes."""
    path = os.path.join(root, "config", f"{name}.json")
    for candidate in (path, f"{path}.bak"):
        try:
            with open(candidate, "rb") as file:
                content = file.read()
            table = json.loads(re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', content.decode()))[key]
            if isinstance(table, dict):
                for text in read_journal(RealFileSystem(), path, content):
                    table.update(json.loads(text)[key])
                return table
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
