"""Says at the start if there are messages, but not the tables in ``config/`` that know of them.

Answers to nothing of Apache's, whose broker starts on messages without tables as if it were new, and says nothing.
"""

from collections.abc import Callable, Iterable

from twisted.logger import Logger

from rocketd.common.names import BROKER_ONLY_TOPICS, LMQ_PREFIX, RETRY_PREFIX
from rocketd.store.filesystem import IFileSystem

_NAMED = 5
"""How many topics the log names."""

_log = Logger()


def implied_topics(queues: Iterable[tuple[str, int]]) -> dict[str, int]:
    """How many queues each topic has at least, by its queues: topics and queue ids. Light queues and what the broker keeps
    for itself have no topic of their own.
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
    """Log what the store has messages for and the tables do not know.

    ``topics`` is the path of the table of topics, ``others`` are those of groups and offsets; ``queues`` are those that have
    messages, ``is_known`` tells of a topic that was loaded.
    """
    implied = implied_topics(queues)
    if not implied:
        return
    unknown = sorted(topic for topic in implied if not is_known(topic))
    missing = [path for path in (topics, *others) if not (fs.exists(path) or fs.exists(path + ".bak"))]
    # A broker without consumers has no groups and offsets; each group has a topic for what it is sent again.
    grouped = any(topic.startswith(RETRY_PREFIX) for topic in implied)
    if topics in missing or (missing and grouped):
        _log.error(
            "the store has messages of {count} topics, but {missing} is missing: {what}; stop the broker and put back the "
            "directory of these files from a backup, or make the topics again and set the offsets of the groups",
            count=len(implied),
            missing=" and ".join(missing),
            what=f"{len(unknown)} topics have lost their settings, and groups begin anew"
            if unknown
            else "groups begin anew",
        )
    if unknown:
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        _log.warn(
            "{count} topics have messages in the store, but no entry in {path}: {names}; a master makes those anew that are "
            "younger than the table, nobody can read the others, and cleanUnusedTopic deletes their queues",
            count=len(unknown),
            path=topics,
            names=", ".join(f"{topic} ({implied[topic]} queues)" for topic in unknown[:_NAMED]) + more,
        )
