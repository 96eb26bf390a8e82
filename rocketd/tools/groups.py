"""``rocketd groups``: print what is wrong within consumer groups.

No counterpart in Apache. Asks every master of the cluster with a request that only rocketd's brokers know.
"""

from typing import Any

from twisted.logger import LogLevel
from twisted.python import usage

from rocketd.client.errors import RocketMQError, check_response
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.names import group_fault
from rocketd.remoting.admin_headers import GroupProblemsRequestHeader
from rocketd.remoting.bodies import SubscriptionGroupWrapper
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.group_bodies import GroupProblem, GroupProblems
from rocketd.tools.console import CommandError, run, show, show_log
from rocketd.tools.masters import NOT_ALL_ANSWERED, ask_masters
from rocketd.tools.options import ClientOptions

NAME = "rocketd groups"
PROBLEMS_FOUND = 1


class GroupsOptions(ClientOptions):
    """Options of ``rocketd groups``."""

    synopsis = "Usage: rocketd groups [options] [GROUP]"
    longdesc = (
        "Print a line for each problem of the groups that are online, or of one group: broker, group, kind, and what is "
        "wrong, separated by tabs. Problems are differing subscriptions, one client id used twice, queues that nobody "
        "reads, and groups that asked for CONSUME_FROM_LAST_OFFSET and began at the first message. The exit status is 0 "
        "when there is none, 1 when there is any or no broker knows the group, 2 for a wrong command line, and 3 when not "
        "all masters answered, whatever the others said."
    )

    def __init__(self) -> None:
        super().__init__()
        self.group: str | None = None

    def parseArgs(self, group: str | None = None) -> None:
        """Take the group."""
        if group is not None and (fault := group_fault(group)) is not None:
            raise usage.UsageError(f"group {group!r}: {fault}")
        self.group = group

    def run(self) -> int:
        """Print the problems; return the exit status."""
        show_log(LogLevel.critical)
        return run(NAME, self._print_problems, (CommandError, RocketMQError))

    async def _print_problems(self, reactor: Any) -> int:
        client = self.make_client(reactor)
        client.startService()
        try:
            answers = await ask_masters(client, lambda address: self._ask(client, address))
        finally:
            await client.stopService()
        status = 0
        for name, problems in answers.found.items():
            for problem in problems or ():
                show(name, problem.group, problem.kind, problem.text, sep="\t")
                status = PROBLEMS_FOUND
        answers.complain(NAME)
        if all(problems is None for problems in answers.found.values()):
            raise answers.nobody(f"knows the group {self.group}")
        return NOT_ALL_ANSWERED if answers.failed else status

    async def _ask(self, client: ClientInstance, address: str) -> list[GroupProblem] | None:
        """Ask a broker; None when it has no such group."""
        header = GroupProblemsRequestHeader(consumer_group=self.group)
        response = await client.ask(address, RequestCode.GET_GROUP_PROBLEMS, header)
        problems = GroupProblems.decode(check_response(address, response).body).problems
        if problems or self.group is None:
            return problems
        response = await client.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        known = SubscriptionGroupWrapper.decode(check_response(address, response).body).subscription_group_table
        return problems if self.group in known else None
