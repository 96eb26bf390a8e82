"""Disables groups that read too far behind, if the operator wants that.

Active only if ``disableConsumeIfConsumerReadSlowly`` is set. Every three minutes the offsets read since the last check
are compared with the end of the log. A group more than ``consumerFallbehindThreshold`` bytes behind loses its
``consumeEnable``. An administrator restores it with updateSubGroup. One thread at a time.

Counterpart: `BrokerController.protectBroker`, and the fall-behind measurements of `BrokerStatsManager` (Apache).
"""

from msgspec.structs import replace
from twisted.logger import Logger

from rocketd.broker.pull.parts import PullParts
from rocketd.remoting.headers.client import PullMessageRequestHeader

INTERVAL_MS = 180_000


class SlowReaders:
    """Remembers read offsets and disables groups too far behind. Call ``check`` every second."""

    _log = Logger()

    def __init__(self, broker: PullParts) -> None:
        self._broker = broker
        self._settings = broker.settings.broker
        self._places: dict[tuple[str, str, int], int] = {}
        self._next_ms = broker.clock_ms() + INTERVAL_MS

    def reads(self, header: PullMessageRequestHeader) -> None:
        """Record the offset of a pull, if the setting is on."""
        if self._settings.disable_consume_if_consumer_read_slowly:
            self._places[header.consumer_group, header.topic, header.queue_id] = header.queue_offset

    def check(self) -> None:
        """Every three minutes, disable the groups that were too far behind in this interval."""
        now = self._broker.clock_ms()
        if now < self._next_ms:
            return
        self._next_ms = now + INTERVAL_MS
        places, self._places = self._places, {}
        if not self._settings.disable_consume_if_consumer_read_slowly:
            return
        furthest: dict[str, tuple[int, str, int]] = {}
        for (group, topic, queue_id), offset in places.items():
            behind = self._bytes_behind(topic, queue_id, offset)
            if behind > furthest.get(group, (0, "", 0))[0]:
                furthest[group] = behind, topic, queue_id
        for group, place in furthest.items():
            if place[0] > self._settings.consumer_fallbehind_threshold:
                self._disable(group, *place)

    def _bytes_behind(self, topic: str, queue_id: int, offset: int) -> int:
        store = self._broker.store
        entries = store.queue_entries(topic, queue_id, max(offset, store.get_min_offset(topic, queue_id)), 1)
        return int(store.max_physical_offset() - entries[0][0]) if entries else 0

    def _disable(self, group: str, behind: int, topic: str, queue_id: int) -> None:
        config = self._broker.groups.get(group)
        if config is None or not config.consume_enable:
            return
        self._log.warn(
            "[PROTECT_BROKER] the consumer[{group}] consume slowly, {behind} bytes, disable it; it reads queue {queue} of "
            "{topic}, the limit is {limit} (consumerFallbehindThreshold); enable it again with updateSubGroup -d true",
            group=group,
            behind=behind,
            queue=queue_id,
            topic=topic,
            limit=self._settings.consumer_fallbehind_threshold,
        )
        self._broker.groups.update(replace(config, consume_enable=False))
