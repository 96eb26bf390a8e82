"""The answer to rocketd's own request about consumer groups, GET_GROUP_PROBLEMS (30001).

Times are Unix milliseconds.
"""

from rocketd.remoting.bodies.tables import Body, JavaEnum


class GroupProblemKind(JavaEnum):
    """Kind of problem within a group."""

    DIFFERENT_SUBSCRIPTIONS = "DIFFERENT_SUBSCRIPTIONS"
    DUPLICATE_CLIENT_ID = "DUPLICATE_CLIENT_ID"
    UNREAD_QUEUES = "UNREAD_QUEUES"
    FIRST_INSTEAD_OF_LAST_OFFSET = "FIRST_INSTEAD_OF_LAST_OFFSET"


class GroupProblem(Body):
    """One problem: ``text`` describes it for people, ``clients`` are the affected ones, each with its address.

    - ``queues``: for UNREAD_QUEUES the queues without a reader, for FIRST_INSTEAD_OF_LAST_OFFSET the queues in which the
      group started at the first message.
    - ``waiting`` is the number of unread messages in them. For FIRST_INSTEAD_OF_LAST_OFFSET, messages stored after the
      group started do not count.
    - ``since`` is the time of the first observation.
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
    """The present problems, and the number of problems of each kind since the broker's start."""

    problems: list[GroupProblem] = []
    counts: dict[str, int] = {}
