"""Asks all masters of a cluster the same, for commands that put their answers together.

Answers to the first step of most mqadmin commands, which give up at the first broker that does not answer.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rocketd.client.errors import RocketMQError, check_response
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.remoting.bodies import ClusterInfo
from rocketd.remoting.codes import RequestCode
from rocketd.tools.console import CommandError, complain

T = TypeVar("T")

MASTER_ID = 0

NOT_ALL_ANSWERED = 3
"""The exit status of a command that not all answered: what it printed may lack something."""


@dataclass
class Answers(Generic[T]):
    """What the masters said, by broker name in order, and why others said nothing."""

    found: dict[str, T] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def complain(self, command: str) -> None:
        """Print a line on standard error for each broker that said nothing."""
        for name, reason in self.failed.items():
            complain(command, f"nothing from {name}: {reason}")

    def nobody(self, what: str) -> CommandError:
        """Return the error that no broker ``what``; its status says whether all answered."""
        if not self.failed:
            return CommandError(f"no broker {what}")
        if not self.found:
            return CommandError("no broker answered", NOT_ALL_ANSWERED)
        return CommandError(f"no broker that answered {what}", NOT_ALL_ANSWERED)


async def ask_masters(client: ClientInstance, ask: Callable[[str], Awaitable[T]]) -> Answers[T]:
    """Call ``ask`` with the address of each master, one after the other. What raises RocketMQError has failed.

    Raises CommandError when the name servers cannot tell who they are, or know no broker.
    """
    brokers = await _brokers(client)
    answers: Answers[T] = Answers()
    for name in sorted(brokers):
        address = brokers[name].get(MASTER_ID)
        if address is None:
            answers.failed[name] = "its master is not registered at the name server, only slaves are"
            continue
        try:
            answers.found[name] = await ask(address)
        except RocketMQError as error:
            answers.failed[name] = str(error)
    return answers


async def _brokers(client: ClientInstance) -> dict[str, dict[int, str]]:
    try:
        response = check_response("the name server", await client.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))
    except RocketMQError as error:
        raise CommandError(str(error), NOT_ALL_ANSWERED) from error
    brokers = ClusterInfo.decode(response.body).broker_addr_table
    if not brokers:
        servers = ";".join(client.config.name_servers())
        raise CommandError(f"no broker is registered at name server {servers}", NOT_ALL_ANSWERED)
    return {name: data.broker_addrs for name, data in brokers.items()}
