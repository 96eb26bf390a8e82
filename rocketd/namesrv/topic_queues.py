"""Which broker has which queues of a topic.

Answers to topicQueueTable of Apache's RouteInfoManager and what that class does with it. Sans-io, and without a lock: it
belongs to the one who made it, RouteInfoManager. What is returned is never changed afterwards.
"""

from collections.abc import Callable, Container, Iterable

import msgspec

from rocketd.remoting.bodies import QueueData, TopicConfig


class TopicQueues:
    """Topic to broker name to queues. A topic without a broker is no topic."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, QueueData]] = {}

    def put(self, broker_name: str, configs: Iterable[TopicConfig]) -> list[str]:
        """Take a broker's topics beside those it has; return the names of the new and the changed ones."""
        changed = []
        for config in configs:
            queue = QueueData(
                broker_name=broker_name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )
            queues = self._table.setdefault(config.topic_name, {})
            if queues.get(broker_name) != queue:
                queues[broker_name] = queue
                changed.append(config.topic_name)
        return changed

    def set_perms(self, broker_name: str, new_perm: Callable[[int], int]) -> int:
        """Change the permission of all of a broker's topics; return how many it has."""
        count = 0
        for queues in self._table.values():
            queue = queues.get(broker_name)
            if queue is not None:
                queues[broker_name] = msgspec.structs.replace(queue, perm=new_perm(queue.perm))
                count += 1
        return count

    def delete(self, topic: str, broker_names: Iterable[str] | None = None) -> bool:
        """Forget a topic, at all brokers or at those named; tell whether anything was there to forget."""
        queues = self._table.get(topic, {})
        gone = [name for name in (queues if broker_names is None else broker_names) if name in queues]
        for name in gone:
            del queues[name]
        if not queues:
            self._table.pop(topic, None)
        return bool(gone)

    def forget_broker(self, broker_name: str) -> None:
        """Forget all topics of a broker."""
        for topic in list(self._table):
            self.delete(topic, (broker_name,))

    def of(self, topic: str) -> list[QueueData]:
        """Return a topic's queues by broker; none when it is unknown."""
        return list(self._table.get(topic, {}).values())

    def names(self) -> list[str]:
        """Return all topics."""
        return list(self._table)

    def names_at(self, broker_names: Container[str]) -> list[str]:
        """Return the topics that any of these brokers has."""
        return [topic for topic, queues in self._table.items() if any(name in broker_names for name in queues)]

    def names_by_flag(self, wanted: Callable[[int], bool]) -> list[str]:
        """Return the topics with a wanted flag word; judged by the first broker, since all give a topic the same."""
        return [t for t, queues in self._table.items() if wanted(next(iter(queues.values())).topic_sys_flag)]
