"""The topics and the consumer groups of a run. The name of a group is also the role of its workers."""

from __future__ import annotations

PLAIN, ORDERED, KEYED = "ChaosPlain", "ChaosOrdered", "ChaosKeyed"
TRANSACTIONS, DELAYED, LARGE, REQUESTS = "ChaosTransactions", "ChaosDelayed", "ChaosLarge", "ChaosRequests"
ALL = (PLAIN, ORDERED, KEYED, TRANSACTIONS, DELAYED, LARGE, REQUESTS)
QUEUES = 8

CONCURRENT, QUEUE_ORDER, KEY_ORDER = "concurrent", "ordered", "keyed"
BROADCAST, POLL, ITERATION, REST = "broadcast", "poll", "iteration", "rest"
GROUPS = {
    CONCURRENT: (PLAIN,),
    QUEUE_ORDER: (ORDERED,),
    KEY_ORDER: (KEYED,),
    BROADCAST: (PLAIN,),
    POLL: (PLAIN,),
    ITERATION: (PLAIN,),
    REST: (DELAYED, LARGE, TRANSACTIONS),
}
"""The topics of each group, without the one for requests."""


def key_of(ident: str) -> str:
    """The key of a message of KEYED. Behind it, its id has the number among the messages of the key."""
    return ident.rpartition(":")[0]


def number_of(ident: str) -> int:
    """The number of a message of KEYED among the messages of its key."""
    return int(ident.rpartition(":")[2])
