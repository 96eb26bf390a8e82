"""What ``config/consumerFilter.json`` consists of.

Answers to the JSON form of Apache's ConsumerFilterManager, ConsumerFilterData and BloomFilterData. Times in Unix
milliseconds.
"""

from rocketd.remoting.bodies import Body


class BloomFilterData(Body):
    """Which bits of a bitmap, of that many, stand for a group's filter of a topic."""

    bit_num: int = 0
    bit_pos: tuple[int, ...] = ()


class ConsumerFilterData(Body):
    """A group's filter of a topic. ``dead_time`` is 0 while the group has members, ``dead`` follows from it."""

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
