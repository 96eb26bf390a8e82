"""Python consumers that get SIGTERM in the middle of a message, against rocketd's servers and against Apache's."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from rocketd.client import Message
from tests.interop.python_client_faces import Got, SyncFace
from tests.interop.python_client_servers import Servers
from tests.interop.python_client_stopping import HOLD, StoppingMember
from tests.interop.python_client_world import World, numbered

BEFORE, AFTER = numbered("before", 5), numbered("after", 10)
CASES = [f"{face}-{style}" for face, style in product(("sync", "aio", "twisted"), ("handler", "iteration", "endless"))]


@dataclass
class Ending:
    """The end of a member: the bodies it handled, how it ended, and the messages of the group's next member."""

    begun: list[bytes]
    ended: list[bytes]
    status: int
    errors: str
    rest: list[Any] = field(default_factory=list)


def end_one(world: World, case: str) -> Ending:
    """Start a member, end it in the middle of a message, and collect the rest of the messages."""
    face, style = case.split("-")
    topic, group, got = world.topic(1), world.group(), Got()
    with world.producer() as producer:
        producer.send_batch([Message(topic, body) for body in (*BEFORE, HOLD, *AFTER)])
    member = StoppingMember(world.servers.namesrv, group, topic, face, style)
    member.terminate_while_it_holds()
    if style != "endless":
        member.go_on()
    status, errors = member.end()
    ending = Ending(member.begun, member.ended, status, errors)
    with world.consumer(group, topic, got):
        got.wait("the rest comes", lambda: {*member.ended, *got.bodies} >= {*BEFORE, HOLD, *AFTER})
    ending.rest = got.messages
    return ending


@pytest.fixture(scope="module")
def endings(python_servers: Servers) -> Callable[[str], Ending]:
    world = World(python_servers, SyncFace())
    # Most of the time each of them waits for its interpreter.
    with ThreadPoolExecutor(len(CASES)) as pool:
        found = {case: pool.submit(end_one, world, case) for case in CASES}
    return lambda case: found[case].result()


@pytest.mark.parametrize("case", CASES)
def test_stop_loses_nothing_and_finishes_current_messages(endings: Callable[[str], Ending], case: str) -> None:
    ending = endings(case)
    assert ending.status == 0, ending.errors
    everything = [*BEFORE, HOLD, *AFTER]
    assert ending.begun == everything[: len(ending.begun)]
    if case.endswith("endless"):
        # One was in hand when the grace time was over, so it comes again; it did not fail.
        assert ending.ended == BEFORE
        assert {message.reconsume_times for message in ending.rest} == {0}
    else:
        # The signal may be heard only in the middle of a later one.
        assert ending.ended == ending.begun
        assert ending.errors == ""  # where a handler is cancelled, a warning tells of it
    assert sorted([*ending.ended, *(message.body for message in ending.rest)]) == sorted(everything)
