"""The lag of a consumer group: the answer to rocketd's own request GET_CONSUMER_LAG (30002).

Times in milliseconds.
"""

from rocketd.remoting.bodies.tables import Body, MessageModel


class QueueLag(Body):
    """Lag of a group in one queue.

    - ``consumer_offset`` is -1 if the group has not committed one. All messages of the queue count then.
    - ``messages`` is the number of wanted messages not consumed yet.
    - ``delay_millis`` is the age of the first of them, 0 without any.
    - ``exact`` is false if there were too many to examine. The rest counts as wanted.
    """

    topic: str
    queue_id: int
    min_offset: int = 0
    max_offset: int = 0
    consumer_offset: int = -1
    messages: int = 0
    delay_millis: int = 0
    exact: bool = True


class TopicFilter(Body):
    """A group's filter for a topic. ``current`` is false if it is the filter of its last member, now gone."""

    expression_type: str
    sub_string: str
    current: bool


class ConsumerLag(Body):
    """Lag of a group. If a topic is missing in ``filters``, its filter is unknown and all messages count."""

    consumer_group: str
    online: bool
    message_model: MessageModel | None = None
    total_messages: int = 0
    max_delay_millis: int = 0
    filters: dict[str, TopicFilter] = {}
    queues: list[QueueLag] = []
