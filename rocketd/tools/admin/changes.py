"""Changes at several brokers: all of them are told, and each refusal is a line.

Counterpart: the loops of the mqadmin commands with a cluster (Apache). They stop at the first refusal.
"""

from collections.abc import Awaitable, Sequence
from typing import Final

from rocketd.client.errors import RocketMQError, UsageError
from rocketd.common.command_line.output import complain
from rocketd.tools.base.lacking_requests import reason_of

REFUSED: Final = 1
"""Exit status if a broker refused a change, or did not answer."""


async def refusals_of(change: Awaitable[object]) -> Sequence[RocketMQError]:
    """Await a change at several brokers, and return the errors of those that did not take it. Raises UsageError."""
    try:
        await change
    except UsageError:
        raise
    except RocketMQError as error:
        others, error.others = error.others, ()
        return (error, *others)
    return ()


def status_of(refusals: Sequence[RocketMQError], done: str) -> int:
    """Print a line for each refusal, or the sentence ``done`` without any, and return the exit status."""
    for refusal in refusals:
        complain(f"not changed at {refusal.broker}: {reason_of(refusal)}")
    if refusals:
        return REFUSED
    if done:
        complain(done)
    return 0
