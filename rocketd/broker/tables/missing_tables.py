"""Warns at the start if the store holds messages, but ``config/`` lacks their tables.

Apache's broker starts like a new one in this case, and logs nothing.
"""

from collections.abc import Callable, Iterable

from twisted.logger import Logger

from rocketd.common.names import BROKER_ONLY_TOPICS, LMQ_PREFIX, RETRY_PREFIX
from rocketd.store.base.filesystem import IFileSystem

_NAMED = 5
"""The maximum number of topics named in the log."""

_log = Logger()


def implied_topics(queues: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the minimum number of queues of each topic, from pairs of topic and queue id.

    Light queues and the broker's system topics are left out.
    """
    found: dict[str, int] = {}
    for topic, queue_id in queues:
        if topic not in BROKER_ONLY_TOPICS and not topic.startswith(LMQ_PREFIX):
            found[topic] = max(found.get(topic, 0), queue_id + 1)
    return found


def warn_of_missing_tables(
    fs: IFileSystem,
    topics: str,
    others: Iterable[str],
    queues: Iterable[tuple[str, int]],
    is_known: Callable[[str], bool],
) -> None:
    """Log the topics with messages that the tables do not know.

    ``topics`` is the path of the topic table, ``others`` are those of groups and offsets. ``queues`` are the queues
    with messages, and ``is_known`` tests a topic against the loaded table.
    """
    implied = implied_topics(queues)
    if not implied:
        return
    unknown = sorted(topic for topic in implied if not is_known(topic))
    missing = [path for path in (topics, *others) if not (fs.exists(path) or fs.exists(path + ".bak"))]
    # A broker without consumers has no groups or offsets. A group with consumers has a retry topic.
    grouped = any(topic.startswith(RETRY_PREFIX) for topic in implied)
    if topics in missing or (missing and grouped):
        _log.error(
            "the store has messages of {count} topics, but {missing} is missing: {what}; stop the broker and put back the "
            "directory of these files from a backup, or create the topics again and set the offsets of the groups",
            count=len(implied),
            missing=" and ".join(missing),
            what=f"{len(unknown)} topics have lost their settings, and groups may have lost settings and offsets"
            if unknown
            else "consumer groups have lost their settings or offsets",
        )
    if unknown:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        _log.warn(
            "{count} topics have messages in the store, but no entry in {path}: {names}; a master creates those "
            "again that are newer than the table; the others cannot be read, and cleanUnusedTopic deletes their queues",
            count=len(unknown),
            path=topics,
            names=", ".join(f"{topic} ({implied[topic]} queues)" for topic in unknown[:_NAMED]) + more,
        )
