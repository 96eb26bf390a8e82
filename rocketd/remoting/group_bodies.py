"""The answer to a request of our own about consumer groups, GET_GROUP_PROBLEMS (30001).

No counterpart in Apache. Times are Unix milliseconds.
"""

from rocketd.remoting.bodies import Body, JavaEnum


class GroupProblemKind(JavaEnum):
    """What may be wrong within a group."""

    DIFFERENT_SUBSCRIPTIONS = "DIFFERENT_SUBSCRIPTIONS"
    DUPLICATE_CLIENT_ID = "DUPLICATE_CLIENT_ID"
    UNREAD_QUEUES = "UNREAD_QUEUES"
    FIRST_INSTEAD_OF_LAST_OFFSET = "FIRST_INSTEAD_OF_LAST_OFFSET"


class GroupProblem(Body):
    """One thing that is wrong: ``text`` says it to people, ``clients`` are those concerned, each with its address.

    ``queues`` are those of the topic that are unread, or were begun at their first message; ``waiting`` messages of them are
    still to be read, of the latter those that were there when the group began. ``since`` is when it was first seen.
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
