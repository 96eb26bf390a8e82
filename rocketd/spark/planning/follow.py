"""Follows the ends of a stream's queues.

An unreachable server is waited for. So is a queue that seems deleted, or that seems to end before its position: brokers
restart. Meanwhile the stream goes on with the messages of other brokers. "Nothing new" is answered only after all
queues answered. A caller waiting until the stream has everything relies on this.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketd.spark.errors import ClusterError, DataLossError
from rocketd.spark.options import ReadOptions
from rocketd.spark.planning.limits import by_bytes, by_rows, is_held_back, new_messages
from rocketd.spark.planning.losses import checked_starts, log, report_losses
from rocketd.spark.planning.offsets import Bounds, bounds_of, start_offsets
from rocketd.spark.planning.queues import chosen_queues
from rocketd.spark.planning.splits import Sizer
from rocketd.spark.ranges import Catalog, Offsets, Queue, QueueRange

FIRST_PATIENCE: Final = 30.0
"""Seconds for which a new stream waits for a server. It is short, so that a wrong address is reported soon."""

SETTLING: Final = 30.0
"""Seconds in which a queue may return to its position: a starting broker first rebuilds the ends of its queues."""

_FIRST_REST: Final = 0.02
_LONGEST_REST: Final = 0.2
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_HOLDING: Final = 0.25
_NAME_SERVERS: Final = "the name servers"
_ADVICE: Final = (
    "; start with another checkpointLocation, or set failOnDataLoss=false to continue with the remaining messages"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one micro-batch; None means unlimited."""

    max_rows: int | None = None
    max_bytes: int | None = None
    least_rows: int | None = None


@dataclass(frozen=True, slots=True)
class News:
    """The starts and ends of a micro-batch. A start differs from the given position if messages were lost."""

    starts: Offsets
    ends: Offsets


@dataclass(slots=True)
class _Round:
    """The answers of one round of questions."""

    bounds: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    away: dict[str, ClusterError] = field(default_factory=dict)
    gone: list[Queue] = field(default_factory=list)


_Troubles = dict[str, tuple[float, ClusterError | DataLossError]]


class QueueFollower:
    """One stream's view of its queues. `clock` and `pause` are replaced in tests only."""

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
        self._compared: set[Queue] = set()
        """Queues whose message before the first position was looked at."""
        self._bounds: Bounds = {}
        """The answers of the last round."""
        self.seen: Offsets = {}
        """The ends as of the last round."""

    def initial(self) -> Offsets:
        """Return the offsets at which a new stream starts. Raises OptionError, DataLossError, ClusterError."""
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
            except ClusterError as error:
                if not error.retriable or self._clock() >= ends:
                    raise
            self._pause(_FIRST_PAUSE)

    def target(self) -> Offsets:
        """Return the present ends of all queues. Waits until every broker has answered. Raises ClusterError."""
        return self._until_sound({}, stop_at_news=False).ends

    def news(
        self,
        positions: Offsets,
        limits: Limits,
        target: Mapping[Queue, int] | None = None,
        stored: Mapping[Queue, int] | None = None,
    ) -> News:
        """Return the messages after these positions, within the limits and not beyond the target.

        Starts equal ends if there is nothing new. New queues are included only if they have messages. Blocks while
        messages are held back by minOffsetsPerTrigger. `stored` are the known store times (ms) of the messages before
        the positions. Raises DataLossError, ClusterError.
        """
        if self._rest:
            self._pause(self._rest)
        began = self._clock()
        while True:
            found = self._begun_anew(self._until_sound(positions, stop_at_news=True), positions, stored or {})
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

    def _begun_anew(self, found: News, positions: Offsets, stored: Mapping[Queue, int]) -> News:
        """Compare the message before each position with the one that was read, at first and if there are new messages.

        Another one shows that the topic was deleted and recreated. Then the queue is read from its first message on.
        Raises DataLossError if losses are errors. A queue whose broker does not answer has no news.
        """
        starts, ends = dict(found.starts), dict(found.ends)
        for queue in sorted(stored.keys() & positions.keys() & self._bounds.keys()):
            position, stored_ms, (low, end) = positions[queue], stored[queue], self._bounds[queue]
            if starts[queue] == ends[queue] == position and queue in self._compared:
                continue
            try:
                looked_at = low if starts[queue] < position else position - 1  # the end of a shorter queue says nothing
                now_ms = self._catalog().stored_at(queue, looked_at)
            except ClusterError as error:
                if not error.retriable:
                    raise
                starts[queue] = ends[queue] = position
                continue
            self._compared.add(queue)
            if now_ms is None or now_ms == stored_ms or (looked_at < position - 1 and now_ms < stored_ms):
                continue
            text = (
                f"{queue} was deleted and made anew: the messages before offset {position} are not those that were read"
            )
            if self._options.fail_on_data_loss:
                raise DataLossError(text + _ADVICE)
            log.warning("%s; going on with its first message, as failOnDataLoss is false", text)
            starts[queue], ends[queue] = low, end
        return News(starts, ends)

    def stored_before(self, offsets: Offsets, known: Mapping[Queue, int]) -> dict[Queue, int]:
        """Return the store time (ms) of the message before each offset, as far as it is known or a broker tells it."""
        stored = {}
        for queue, offset in offsets.items():
            try:
                stored_ms = known[queue] if queue in known else self._catalog().stored_at(queue, offset - 1)
            except ClusterError as error:
                if not error.retriable:
                    raise
                continue
            if stored_ms is not None:
                stored[queue] = stored_ms
        return stored

    def check_same(self, offsets: Offsets, stored: Mapping[Queue, int]) -> None:
        """Raise DataLossError if a queue has another message before its offset, and losses are errors."""
        compared = {queue: offsets[queue] for queue in sorted(stored.keys() & offsets.keys())}
        for queue, now_ms in self.stored_before(compared, {}).items():
            if now_ms != stored[queue]:
                text = f"{queue} was deleted and made anew: the messages before offset {offsets[queue]} are other ones"
                if self._options.fail_on_data_loss:
                    raise DataLossError(text + _ADVICE)
                log.warning("%s; going on, as failOnDataLoss is false", text)

    def _limited(self, found: News, positions: Mapping[Queue, int], limits: Limits) -> News:
        ends = found.ends
        if limits.max_rows is not None:
            ends = by_rows(found.starts, ends, limits.max_rows)
        if limits.max_bytes is not None:
            ends = by_bytes(found.starts, ends, limits.max_bytes, self._size)
        empty = {queue for queue, end in ends.items() if queue not in positions and end <= found.starts[queue]}
        return News(
            {queue: start for queue, start in found.starts.items() if queue not in empty},
            {queue: end for queue, end in ends.items() if queue not in empty},
        )

    def _until_sound(self, positions: Offsets, *, stop_at_news: bool) -> News:
        """Ask until there are new messages, or all queues gave valid answers.

        Raises the error of a problem that lasts too long.
        """
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
        except ClusterError as error:
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
            except ClusterError as error:
                if not error.retriable:
                    raise
                asked.away[queue.broker] = error
        self._bounds = asked.bounds
        self.seen = {**positions, **{queue: end for queue, (_, end) in asked.bounds.items()}}
        return asked

    def _troubles(self, positions: Offsets, asked: _Round) -> _Troubles:
        """Return the problems in the answers: for each, the time (s) it may last and the error to raise then."""
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
        """Return the problems still waited for.

        Raises the error of one that lasts too long, unless its loss is accepted.
        """
        now = self._clock()
        self._since = {name: self._since.get(name, now) for name in troubles}
        self._accepted &= set(troubles)
        for name, (patience, error) in troubles.items():
            lasting = now - self._since[name]
            if name in self._accepted or lasting < patience:
                continue
            if isinstance(error, ClusterError) or self._options.fail_on_data_loss:
                advice = _ADVICE if isinstance(error, DataLossError) else ""
                raise type(error)(f"{error} (for {lasting:.0f} s){advice}")
            log.warning("%s; going on, as failOnDataLoss is false", error)
            self._accepted.add(name)
        return {name: trouble for name, trouble in troubles.items() if name not in self._accepted}

    def _merged(self, positions: Offsets, asked: _Round) -> News:
        """Return the starts and ends of all queues. An end moves back only if that loss is accepted."""
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
    """Drop messages that came after the target was set, and queues that are newer than the target."""
    starts = {queue: start for queue, start in found.starts.items() if queue in positions or queue in target}
    ends = {queue: max(min(found.ends[queue], target.get(queue, start)), start) for queue, start in starts.items()}
    return News(starts, ends)
