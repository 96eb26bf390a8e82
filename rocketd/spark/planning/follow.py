"""Follows the ends of a stream's queues: what is new, never what was new some time ago.

A server that is away is waited for, and so is a queue that seems to have gone or to end before its position: brokers
restart. Meanwhile the stream goes on with what other brokers have. An answer without news is given only when all queues
were asked: who waits for a stream to have everything relies on that.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketd.spark.errors import BrokerError, DataLossError
from rocketd.spark.options import ReadOptions
from rocketd.spark.planning.limits import by_bytes, by_rows, is_held_back, new_messages
from rocketd.spark.planning.losses import checked_starts, log, report_losses
from rocketd.spark.planning.offsets import Bounds, bounds_of, start_offsets
from rocketd.spark.planning.queues import chosen_queues
from rocketd.spark.planning.splits import Sizer
from rocketd.spark.ranges import Catalog, Offsets, Queue, QueueRange

FIRST_PATIENCE: Final = 30.0
"""Seconds that a new stream waits for a server: a wrong address should be told soon."""

SETTLING: Final = 30.0
"""Seconds in which a queue may still come back to its position: a broker that starts builds the ends of its queues."""

_FIRST_REST: Final = 0.02
_LONGEST_REST: Final = 0.2
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_HOLDING: Final = 0.25
_NAME_SERVERS: Final = "the name servers"
_ADVICE: Final = "; start with another checkpointLocation, or set failOnDataLoss=false to go on with what is there"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one micro-batch, None where there is none."""

    most_rows: int | None = None
    most_bytes: int | None = None
    least_rows: int | None = None


@dataclass(frozen=True, slots=True)
class News:
    """From where to where a micro-batch reads. `starts` differ from the positions asked about where messages are lost."""

    starts: Offsets
    ends: Offsets


@dataclass(slots=True)
class _Round:
    """What one round of questions has given."""

    bounds: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    away: dict[str, BrokerError] = field(default_factory=dict)
    gone: list[Queue] = field(default_factory=list)


_Troubles = dict[str, tuple[float, BrokerError | DataLossError]]


class Follower:
    """One stream's view of its queues. `clock` and `pause` are those of the process but in tests."""

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        options: ReadOptions,
        size: Sizer | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._catalog = catalog
        self._options = options
        self._size = size or (lambda part: catalog().bytes_of(part))
        self._clock = clock
        self._pause = pause
        self._rest = 0.0
        self._reached = False
        self._since: dict[str, float] = {}
        self._accepted: set[str] = set()
        self.seen: Offsets = {}
        """The ends as the last round saw them."""

    def initial(self) -> Offsets:
        """Where a new stream starts. Raises OptionError, DataLossError, BrokerError."""
        bounds, starts = self._asked_first()
        starts = checked_starts(starts, bounds, self._options)
        lost = [
            QueueRange(queue, start, bounds[queue][0]) for queue, start in starts.items() if start < bounds[queue][0]
        ]
        report_losses(lost, fail=self._options.fail_on_data_loss)
        return {queue: max(start, bounds[queue][0]) for queue, start in starts.items()}

    def _asked_first(self) -> tuple[Bounds, Offsets]:
        ends = self._clock() + min(FIRST_PATIENCE, self._options.retry_timeout)
        while True:
            try:
                catalog = self._catalog()
                bounds = bounds_of(catalog, chosen_queues(catalog, self._options))
                return bounds, start_offsets(catalog, bounds, self._options)
            except BrokerError as error:
                if not error.retriable or self._clock() >= ends:
                    raise
            self._pause(_FIRST_PAUSE)

    def target(self) -> Offsets:
        """The ends of now, of all queues: waits until every broker has told. Raises BrokerError."""
        return self._until_sound({}, stop_at_news=False).ends

    def news(self, positions: Offsets, limits: Limits, target: Mapping[Queue, int] | None = None) -> News:
        """What there is behind these positions, within the limits and no further than the target.

        Starts and ends are equal where there is nothing new; new queues are in both only if they have messages.
        Blocks while messages are held back. Raises DataLossError, BrokerError.
        """
        if self._rest:
            self._pause(self._rest)
        began = self._clock()
        while True:
            found = self._until_sound(positions, stop_at_news=True)
            if target is not None:
                found = _up_to(found, positions, target)
            messages = new_messages(found.starts, found.ends)
            waited = self._clock() - began
            least = limits.least_rows if target is None else None
            if not is_held_back(messages, least, waited, self._options.max_trigger_delay):
                break
            self._pause(min(_HOLDING, max(0.001, self._options.max_trigger_delay - waited)))
        self._rest = 0.0 if messages else min(_LONGEST_REST, max(_FIRST_REST, 2 * self._rest))
        return self._limited(found, positions, limits)

    def _limited(self, found: News, positions: Mapping[Queue, int], limits: Limits) -> News:
        ends = found.ends
        if limits.most_rows is not None:
            ends = by_rows(found.starts, ends, limits.most_rows)
        if limits.most_bytes is not None:
            ends = by_bytes(found.starts, ends, limits.most_bytes, self._size)
        empty = {queue for queue, end in ends.items() if queue not in positions and end <= found.starts[queue]}
        return News(
            {queue: start for queue, start in found.starts.items() if queue not in empty},
            {queue: end for queue, end in ends.items() if queue not in empty},
        )

    def _until_sound(self, positions: Offsets, *, stop_at_news: bool) -> News:
        """Ask until there are news or all queues have answered, soundly. Raises for troubles that last too long."""
        pause = _FIRST_PAUSE
        while True:
            asked = self._ask(positions)
            troubles = self._lasting(self._troubles(positions, asked))
            news = self._merged(positions, asked)
            if not troubles or (stop_at_news and new_messages(news.starts, news.ends)):
                return news
            self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _ask(self, positions: Offsets) -> _Round:
        asked = _Round()
        catalog = self._catalog()
        try:
            queues = chosen_queues(catalog, self._options, again=True)
        except BrokerError as error:
            if not error.retriable:
                raise
            asked.away[_NAME_SERVERS] = error
            queues = list(positions)
        self._reached |= _NAME_SERVERS not in asked.away
        asked.gone = sorted(set(positions) - set(queues))
        for queue in queues:
            if queue.broker in asked.away:
                continue
            try:
                asked.bounds[queue] = catalog.bounds(queue)
            except BrokerError as error:
                if not error.retriable:
                    raise
                asked.away[queue.broker] = error
        self.seen = {**positions, **{queue: end for queue, (_, end) in asked.bounds.items()}}
        return asked

    def _troubles(self, positions: Offsets, asked: _Round) -> _Troubles:
        """What keeps the answers from being sound: for how long (s) each may last, and the error that it is then."""
        patience = self._options.retry_timeout
        troubles: _Troubles = {f"broker {name}": (patience, error) for name, error in asked.away.items()}
        if _NAME_SERVERS in asked.away and not positions and not self._reached:
            troubles[f"broker {_NAME_SERVERS}"] = min(FIRST_PATIENCE, patience), asked.away[_NAME_SERVERS]
        for queue in asked.gone:
            text = f"{queue} is not there any more: its topic was deleted, or no name server knows its broker"
            troubles[_gone(queue)] = patience, DataLossError(text)
        for queue, (_, end) in asked.bounds.items():
            if end < positions.get(queue, end):
                text = f"{queue} was read up to {positions[queue]}, and ends at {end} now: it lost messages or was made anew"
                troubles[_behind(queue)] = min(SETTLING, patience), DataLossError(text)
        return troubles

    def _lasting(self, troubles: _Troubles) -> _Troubles:
        """Those that are still waited for. Raises the error of one that lasts too long, unless the loss is accepted."""
        now = self._clock()
        self._since = {name: self._since.get(name, now) for name in troubles}
        self._accepted &= set(troubles)
        for name, (patience, error) in troubles.items():
            lasting = now - self._since[name]
            if name in self._accepted or lasting < patience:
                continue
            if isinstance(error, BrokerError) or self._options.fail_on_data_loss:
                advice = _ADVICE if isinstance(error, DataLossError) else ""
                raise type(error)(f"{error} (for {lasting:.0f} s){advice}")
            log.warning("%s; going on, as failOnDataLoss is false", error)
            self._accepted.add(name)
        return {name: trouble for name, trouble in troubles.items() if name not in self._accepted}

    def _merged(self, positions: Offsets, asked: _Round) -> News:
        """Starts and ends of all queues. No queue goes back, unless its loss is accepted."""
        starts, ends = dict(positions), dict(positions)
        lost: list[QueueRange] = []
        for queue, (low, end) in asked.bounds.items():
            position = positions.get(queue)
            if position is None:
                starts[queue], ends[queue] = low, end
            elif end < position:
                if _behind(queue) in self._accepted:
                    starts[queue] = ends[queue] = end
            else:
                if position < low:
                    lost.append(QueueRange(queue, position, low))
                starts[queue], ends[queue] = max(position, low), max(end, low)
        report_losses(lost, fail=self._options.fail_on_data_loss)
        return News(starts, ends)


def _gone(queue: Queue) -> str:
    return f"gone {queue}"


def _behind(queue: Queue) -> str:
    return f"behind {queue}"


def _up_to(found: News, positions: Mapping[Queue, int], target: Mapping[Queue, int]) -> News:
    """The news without what came after the target was set; queues that are newer than it are left out."""
    starts = {queue: start for queue, start in found.starts.items() if queue in positions or queue in target}
    ends = {queue: max(min(found.ends[queue], target.get(queue, start)), start) for queue, start in starts.items()}
    return News(starts, ends)
