"""The answer to a request of our own about consumer groups, GET_GROUP_PROBLEMS (30001).

No counterpart in Apache. Times are Unix milliseconds.
"""

from rocketd.remoting.bodies import Body, JavaEnum


class GroupProblemKind(JavaEnum):
    """What may be wrong within a group."""

    DIFFERENT_SUBSCRIPTIONS = "DIFFERENT_SUBSCRIPTIONS"
    DUPLICATE_CLIENT_ID = "DUPLICATE_CLIENT_ID"
    UNREAD_QUEUES = "UNREAD_QUEUES"


class GroupProblem(Body):
    """One thing that is wrong: ``text`` says it to people, ``clients`` are those concerned, each with its address.

    ``queues`` are the unread ones of the topic, in which ``waiting`` messages are; ``since`` is when it was first seen.
    """

    group: str
    kind: GroupProblemKind
    text: str
    topic: str | None = None
    clients: list[str] = []
    queues: list[int] = []
    waiting: int = 0
    since: int = 0


class GroupProblems(Body):
    """What is wrong now, and how many problems of each kind there were since the broker's start."""

    problems: list[GroupProblem] = []
    counts: dict[str, int] = {}
