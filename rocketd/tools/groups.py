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
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.group_bodies import GroupProblems
from rocketd.tools.console import CommandError, run, show, show_log
from rocketd.tools.masters import find_masters
from rocketd.tools.options import ClientOptions

PROBLEMS_FOUND = 1


class GroupsOptions(ClientOptions):
    """Options of ``rocketd groups``."""

    synopsis = "Usage: rocketd groups [options] [GROUP]"
    longdesc = (
        "Print a line for each problem of the groups that are online, or of one group: broker, group, kind, and what is "
        "wrong, separated by tabs. Problems are differing subscriptions, one client id used twice, queues that nobody "
        "reads, and groups that asked for CONSUME_FROM_LAST_OFFSET and began at the first message. The exit status is 1 "
        "when there is any."
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
        return run("rocketd groups", self._print_problems, (CommandError, RocketMQError))

    async def _print_problems(self, reactor: Any) -> int:
        client = self.make_client(reactor)
        client.startService()
        status = 0
        try:
            for name, address in sorted((await find_masters(client)).items()):
                for problem in (await self._ask(client, address)).problems:
                    show(name, problem.group, problem.kind, problem.text, sep="\t")
                    status = PROBLEMS_FOUND
        finally:
            await client.stopService()
        return status

    async def _ask(self, client: ClientInstance, address: str) -> GroupProblems:
        header = GroupProblemsRequestHeader(consumer_group=self.group)
        response = await client.ask(address, RequestCode.GET_GROUP_PROBLEMS, header)
        return GroupProblems.decode(check_response(address, response).body)
