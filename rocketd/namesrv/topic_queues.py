"""The queues of topics at brokers.

Counterpart: `topicQueueTable` of `RouteInfoManager` (Apache). Sans-io, and without a lock: it belongs to its creator,
RouteInfoManager. Results are never changed afterwards.
"""

from collections.abc import Callable, Container, Iterable, Mapping

import msgspec

from rocketd.remoting.bodies.tables import QueueData, TopicConfig


def queues_of(broker_name: str, configs: Iterable[TopicConfig]) -> dict[str, QueueData]:
    """Return a broker's topics in the form used in routes. Slow for thousands of topics, but needs no lock."""
    return {
        config.topic_name: QueueData(
            broker_name=broker_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )
        for config in configs
    }


class TopicQueues:
    """Topic to broker name to queues. A topic without a broker is removed."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, QueueData]] = {}

    def put(self, broker_name: str, topics: Mapping[str, QueueData]) -> list[str]:
        """Add or replace a broker's topics. Return the names of new and changed ones."""
        changed = []
        for topic, queue in topics.items():
            queues = self._table.setdefault(topic, {})
            if queues.get(broker_name) != queue:
                queues[broker_name] = queue
                changed.append(topic)
        return changed

    def set_perms(self, broker_name: str, new_perm: Callable[[int], int]) -> int:
        """Change the permission of all topics of a broker. Return their number."""
        count = 0
        for queues in self._table.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queues[broker_name] = msgspec.structs.replace(queue, perm=new_perm(queue.perm))
                count += 1
        return count

    def delete(self, topic: str, broker_names: Iterable[str] | None = None) -> bool:
        """Remove a topic, at all brokers or at those named. Return whether it was there."""
        queues = self._table.get(topic, {})
        gone = [name for name in (queues if broker_names is None else broker_names) if name in queues]
        for name in gone:
            del queues[name]
        if not queues:
            self._table.pop(topic, None)
        return bool(gone)

    def forget_broker(self, broker_name: str, but: Container[str] = ()) -> list[str]:
        """Remove all topics of a broker but some. Return the removed ones."""
        gone = [topic for topic in self.names_at((broker_name,)) if topic not in but]
        for topic in gone:
            self.delete(topic, (broker_name,))
        return gone

    def of(self, topic: str) -> list[QueueData]:
        """Return a topic's queues by broker, none if it is unknown."""
        return list(self._table.get(topic, {}).values())

    def names(self) -> list[str]:
        """Return all topics."""
        return list(self._table)

    def names_at(self, broker_names: Container[str]) -> list[str]:
        """Return the topics of any of these brokers."""
        return [topic for topic, queues in self._table.items() if any(name in broker_names for name in queues)]

    def names_by_flag(self, wanted: Callable[[int], bool]) -> list[str]:
        """Return the topics with a wanted flag word. The first broker decides, because all brokers agree about a topic."""
        return [t for t, queues in self._table.items() if wanted(next(iter(queues.values())).topic_sys_flag)]
