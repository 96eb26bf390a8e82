"""Sends the same request to all masters of a cluster, for commands that combine their answers.

Counterpart: the first step of most mqadmin commands (Apache). They give up at the first broker without an answer.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rocketd.client.errors import RocketMQError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.queries.masters import Masters
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.output import complain
from rocketd.protocol.cluster import cluster_info
from rocketd.tools.base.lacking_requests import reason_of

T = TypeVar("T")

NOT_ALL_ANSWERED = 3
"""Exit status if not all masters answered: the output may be incomplete."""


@dataclass
class Answers(Generic[T]):
    """The answers of the masters, by broker name in order, and why others did not answer."""

    found: dict[str, T] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def complain(self) -> None:
        """Print a line on standard error for each broker without an answer."""
        for name, reason in self.failed.items():
            complain(f"nothing from {name}: {reason}")

    def nobody(self, what: str) -> CommandError:
        """Return the error for "no broker ``what``". Its exit status tells whether all brokers answered."""
        if not self.failed:
            return CommandError(f"no broker {what}")
        if not self.found:
            return CommandError("no broker answered", NOT_ALL_ANSWERED)
        return CommandError(f"no broker that answered {what}", NOT_ALL_ANSWERED)


async def answers_of(brokers: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
    """Call ``ask`` with the name of each broker, one after another. A RocketMQError counts as a failure."""
    answers: Answers[T] = Answers()
    for name in brokers:
        try:
            answers.found[name] = await ask(name)
        except RocketMQError as error:
            answers.failed[name] = reason_of(error)
    return answers


async def ask_masters(client: ClientInstance, ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
    """Call ``ask`` with the address of each master, one after another. A RocketMQError counts as a failure.

    Raises CommandError if the name servers do not answer, or if they know no broker.
    """
    masters = await _masters(client)

    async def ask_master(name: str) -> T:
        return await ask(masters.address(name))

    return await answers_of(masters.addresses, ask_master)


async def _masters(client: ClientInstance) -> Masters:
    request = cluster_info()
    try:
        response = await client.ask_name_server(request.code)
        brokers = request.result("the name server", response).broker_addr_table
    except RocketMQError as error:
        raise CommandError(str(error), NOT_ALL_ANSWERED) from error
    if not brokers:
        servers = ";".join(client.config.name_servers())
        raise CommandError(f"no broker is registered at name server {servers}", NOT_ALL_ANSWERED)
    return Masters.of(brokers.values())
