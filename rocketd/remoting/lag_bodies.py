"""The body that tells how far a consumer group is behind.

No counterpart in Apache: the answer to GET_CONSUMER_LAG (30002), a request of our own. Times in milliseconds.
"""

from rocketd.remoting.bodies import Body, MessageModel


class QueueLag(Body):
    """How far a group is behind in one queue.

    ``consumer_offset`` is -1 where the group has committed none; it is then behind by all that is there. ``messages`` are
    those it wants that it has not consumed, ``delay_millis`` is the age of the first of them, 0 without any. ``exact`` is
    false where there were too many to look at, and the rest counts as wanted.
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
    """What a group wants of a topic; ``current`` is false when that is what it wanted before its last member left."""

    expression_type: str
    sub_string: str
    current: bool


class ConsumerLag(Body):
    """How far a group is behind. ``filters`` lacks the topics of which it is not known what the group wants: there, all
    messages count.
    """

    consumer_group: str
    online: bool
    message_model: MessageModel | None = None
    total_messages: int = 0
    max_delay_millis: int = 0
    filters: dict[str, TopicFilter] = {}
    queues: list[QueueLag] = []
