"""The schedule of a run: which servers end when, and which members of a group join and leave."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """A fault of a server or of a producer."""

    KILL_BROKER = "broker: kill -9, started again at once"
    END_BROKER = "broker: SIGTERM, started again at once"
    KILL_NAMESRV = "name server: kill -9, started again after 6 s"
    KILL_TRANSACTIONS = "producer of transactions: kill -9, another one at once"


class Change(Enum):
    """A member that joins or leaves a group."""

    JOIN = "joins"
    LEAVE = "leaves"
    KILL = "kill -9"


NAMESRV_AWAY = 6.0
"""Seconds for which the name server is away."""

CHURN_SECONDS = 3.0
"""Seconds between two changes of members."""

KILL_SHARE = 0.3
"""The share of the leaving members that are killed."""

LASTING, MAX = 2, 6
"""The number of members that stay to the end, and the largest number of members."""

_FAULTS = (
    (25.0, Fault.KILL_BROKER),
    (40.0, Fault.KILL_NAMESRV),
    (55.0, Fault.KILL_TRANSACTIONS),
    (75.0, Fault.END_BROKER),
    (100.0, Fault.KILL_NAMESRV),
)


@dataclass(frozen=True)
class Move:
    """A change of the member with this number, so many seconds after the start."""

    at: float
    change: Change
    member: int


def faults(seconds: float) -> list[tuple[float, Fault]]:
    """Return the faults of a run of this length, and their times."""
    return [(at, fault) for at, fault in _FAULTS if at < seconds]


def churn(seconds: float, seed: int) -> list[Move]:
    """Return the changes of members in a run of this length. Members 1 to LASTING are there all the time."""
    chance = random.Random(seed)
    present: list[int] = []
    following = LASTING + 1
    moves = []
    for turn in range(1, int(seconds / CHURN_SECONDS)):
        joins = not present or (LASTING + len(present) < MAX and chance.random() < 0.5)
        if joins:
            change, member = Change.JOIN, following
            present.append(member)
            following += 1
        else:
            change = Change.KILL if chance.random() < KILL_SHARE else Change.LEAVE
            member = present.pop(chance.randrange(len(present)))
        moves.append(Move(turn * CHURN_SECONDS, change, member))
    return moves
