"""The queues of a read: chosen by topics, by a pattern, or by name."""

import re
from collections.abc import Iterable

from rocketd.common.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from rocketd.common.suggest import did_you_mean
from rocketd.spark.errors import OptionError
from rocketd.spark.options import ReadOptions
from rocketd.spark.options.positions import QueueName
from rocketd.spark.ranges import Catalog, Queue

NO_TOPIC = (
    "the source has no topic at all: nothing has been sent to it yet, or it is not the store or cluster that is meant"
)


def chosen_queues(catalog: Catalog, options: ReadOptions, *, again: bool = False) -> list[Queue]:
    """Return the queues named by the options, sorted.

    Raises OptionError for an unknown topic or queue. With `again` it is left out instead, because brokers come and go.
    A stream by pattern may begin without queues, because a topic may be created later.
    """
    if again:
        return _still_there(catalog, options)
    if options.assign:
        return _assigned(catalog, options.assign)
    if options.subscribe_pattern:
        topics = _matching(catalog, options.subscribe_pattern)
        if not topics and not options.stream:
            raise OptionError(_no_match(catalog, options.subscribe_pattern))
        return sorted(queue for topic in topics for queue in catalog.queues(topic))
    queues: list[Queue] = []
    for topic in options.subscribe:
        found = catalog.queues(topic)
        if not found:
            raise OptionError(f"option subscribe: {_no_topic(catalog, topic)}")
        queues += found
    return sorted(queues)


def _matching(catalog: Catalog, pattern: str) -> list[str]:
    """Return the matching topics of applications and groups. System topics never match; they must be named."""
    whole = re.compile(pattern)
    return [topic for topic in catalog.topics() if whole.fullmatch(topic) and not _is_system(topic)]


def _no_match(catalog: Catalog, pattern: str) -> str:
    topics = catalog.topics()
    if not topics:
        return NO_TOPIC
    own = [topic for topic in topics if re.fullmatch(pattern, topic)]
    advice = f"; {_some(own)} must be named, because system topics never match" if own else ""
    return f"option subscribePattern is {pattern!r}, and no topic matches; there are {_some(topics)}{advice}"


def _is_system(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def _still_there(catalog: Catalog, options: ReadOptions) -> list[Queue]:
    if options.assign:
        topics = sorted({name.topic for name in options.assign})
    elif options.subscribe_pattern:
        topics = _matching(catalog, options.subscribe_pattern)
    else:
        topics = list(options.subscribe)
    queues = sorted(queue for topic in topics for queue in catalog.queues(topic))
    if options.assign:
        queues = [queue for queue in queues if any(name.names(queue) for name in options.assign)]
    return queues


def _assigned(catalog: Catalog, names: tuple[QueueName, ...]) -> list[Queue]:
    queues: set[Queue] = set()
    for name in names:
        there = catalog.queues(name.topic)
        if not there:
            raise OptionError(f"option assign: {_no_topic(catalog, name.topic)}")
        found = [queue for queue in there if name.names(queue)]
        if not found:
            raise OptionError(f"option assign: queue {name} does not exist; there are {_some(map(str, there))}")
        queues.update(found)
    return sorted(queues)


def _no_topic(catalog: Catalog, topic: str) -> str:
    topics = catalog.topics()
    if not topics:
        return f"topic {topic!r} does not exist; {NO_TOPIC}"
    return f"topic {topic!r} does not exist{did_you_mean(topic, topics) or f'; there are {_some(topics)}'}"


def _some(names: Iterable[str], limit: int = 10) -> str:
    listed = list(names)
    if not listed:
        return "none"
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
