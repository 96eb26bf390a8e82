"""Asks all masters at once. A silent one does not hide the answers of the others."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketd.client.errors import RocketMQError
from rocketd.client.instance.all_of import all_of
from rocketd.console.cluster import ConsoleCluster
from rocketd.console.pages.elements import Element, Notice
from rocketd.console.pages.visit import MAX_ROWS
from rocketd.protocol.cluster import MASTER

R = TypeVar("R")


async def each_master(
    cluster: ConsoleCluster, ask: Callable[[str], Coroutine[Any, Any, R]]
) -> tuple[list[R], list[Element]]:
    """Return the results of ``ask``, called with each address, and a notice for each master without a result.

    Raises the error of a master if none has a result.
    """
    masters = [
        (broker.broker_name, broker.broker_addrs[MASTER])
        for broker in await cluster.admin.brokers()
        if MASTER in broker.broker_addrs
    ]
    found: list[R] = []
    failures: list[RocketMQError] = []
    notices: list[Element] = []
    for (name, _), answer in zip(masters, await all_of(_asked(ask(address)) for _, address in masters), strict=True):
        if isinstance(answer, RocketMQError):
            failures.append(answer)
            notices.append(Notice("warning", f"The answer of {name} is missing: {answer}"))
        else:
            found.append(answer)
    if failures and not found:
        raise failures[0]
    return found, notices[:MAX_ROWS]


async def _asked(question: Coroutine[Any, Any, R]) -> R | RocketMQError:
    try:
        return await question
    except RocketMQError as error:
        return error
