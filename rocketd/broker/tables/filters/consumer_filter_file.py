"""The content of ``config/consumerFilter.json``. Times are Unix milliseconds.

Counterpart: the JSON form of `ConsumerFilterManager`, `ConsumerFilterData` and `BloomFilterData` (Apache).
"""

from rocketd.remoting.bodies.tables import Body


class BloomFilterData(Body):
    """The bits of a group's filter for a topic, and the size of the bitmap."""

    bit_num: int = 0
    bit_pos: tuple[int, ...] = ()


class ConsumerFilterData(Body):
    """A group's filter for a topic. ``dead_time`` is 0 while the group has members; ``dead`` follows from it."""

    bloom_filter_data: BloomFilterData | None = None
    born_time: int = 0
    client_version: int = 0
    consumer_group: str = ""
    dead: bool = False
    dead_time: int = 0
    expression: str = ""
    expression_type: str = ""
    topic: str = ""


class FilterDataMapByTopic(Body):
    """The filters of a topic, by group."""

    group_filter_data: dict[str, ConsumerFilterData] = {}
    topic: str = ""


class ConsumerFilterWrapper(Body):
    """All filters, by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = {}
