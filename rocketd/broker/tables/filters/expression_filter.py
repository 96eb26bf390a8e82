"""Message filters of groups that subscribe with an expression.

If a consume queue has extension units, a message is tested by its unit first, then by its properties.

Counterpart: `ConsumerFilterData`, `ExpressionMessageFilter`, `ExpressionForRetryMessageFilter` (Apache).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rocketd.common.message_properties import RETRY_TOPIC, find_property
from rocketd.filter.bloom import is_hit, mask_of
from rocketd.filter.selector import Selector
from rocketd.store.format.message import PropertiesFilter, UnitFilter

_RETRY_TOPIC = RETRY_TOPIC.encode()


@dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """A group's filter for a topic: a MessageFilter for the store. Immutable. Times are Unix milliseconds.

    - ``kind`` is the expression's type.
    - ``selector`` is None for an unusable expression in the file; it then accepts all messages.
    - ``positions`` are the group's bits in bitmaps of size ``bits``. If empty, bitmaps are ignored.
    - ``dead_time`` is the time the last member left, 0 while there are members.
    """

    group: str
    topic: str
    kind: str
    expression: str
    selector: Selector | None
    born_time: int
    client_version: int
    positions: tuple[int, ...] = ()
    bits: int = 0
    dead_time: int = 0
    mask: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", mask_of(self.positions))

    @property
    def is_dead(self) -> bool:
        """Whether the group has no members."""
        return self.dead_time >= self.born_time

    def is_for(self, kind: str, expression: str) -> bool:
        """Whether this is the filter of the given expression."""
        return (self.kind, self.expression) == (kind, expression)

    def replaced(self, *, client_version: int | None = None, dead_time: int) -> "ConsumerFilter":
        """Return a copy with another version and state."""
        version = self.client_version if client_version is None else client_version
        return replace(self, client_version=version, dead_time=dead_time)

    # ---------------------------------------------------------------- MessageFilter

    @property
    def tags_codes(self) -> None:
        """None: tags are not tested."""
        return

    @property
    def matches(self) -> PropertiesFilter | None:
        """The test of a message's properties."""
        return None if self.selector is None else self.selector.matches

    @property
    def matches_unit(self) -> UnitFilter | None:
        """The test of a message's unit in an extended consume queue."""
        return self._matches_unit if self.selector is not None and self.mask else None

    def _matches_unit(self, store_timestamp: int, bitmap: bytes | None) -> bool:
        # The bitmaps of messages older than this filter were computed without it.
        if bitmap is None or len(bitmap) * 8 != self.bits or store_timestamp <= self.born_time:
            return True
        return is_hit(bitmap, self.mask)


class RetryFilter:
    """Filters a group's retry topic: each message is tested with the filter of its original topic."""

    __slots__ = ("_filter_of", "matches", "matches_unit", "tags_codes")

    def __init__(self, tags_codes: frozenset[int] | None, filter_of: Callable[[str], ConsumerFilter | None]) -> None:
        """``tags_codes`` is as in MessageFilter; ``filter_of`` returns the group's filter for a topic."""
        self.tags_codes = tags_codes
        self.matches: PropertiesFilter | None = self._matches
        self.matches_unit: UnitFilter | None = None
        self._filter_of = filter_of

    def _matches(self, properties: bytes) -> bool:
        topic = find_property(properties, _RETRY_TOPIC)
        known = None if topic is None else self._filter_of(topic.decode("utf-8", "replace"))
        matches = None if known is None else known.matches
        return matches is None or matches(properties)
