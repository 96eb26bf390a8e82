"""``rocketd lag``: print how far a consumer group is behind.

Answers to mqadmin consumerProgress -g, but counts only what the group wants, and when nobody of it is online, too. Asks
every master of the cluster with a request that only rocketd's brokers know.
"""

from typing import Any, ClassVar

from twisted.logger import LogLevel
from twisted.python import usage

from rocketd.client.errors import RocketMQError, check_response
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.names import group_fault, topic_fault
from rocketd.remoting.admin_headers import ConsumerLagRequestHeader
from rocketd.remoting.codes import RequestCode, ResponseCode
from rocketd.remoting.lag_bodies import ConsumerLag
from rocketd.tools.console import CommandError, run, show, show_log
from rocketd.tools.masters import NOT_ALL_ANSWERED, ask_masters
from rocketd.tools.options import ClientOptions

NAME = "rocketd lag"

COUNT_TIMEOUT_MS = 60_000
"""How long a broker may count."""

_COLUMNS = ("broker", "topic", "queue", "behind", "seconds", "consumed", "end")


class LagOptions(ClientOptions):
    """Options of ``rocketd lag``."""

    synopsis = "Usage: rocketd lag [options] GROUP"
    longdesc = (
        "Print a line for each queue, its fields separated by tabs: the messages that the group wants and has not "
        "consumed (~ before a number that is no more than an upper limit), the age of the first of them, the offset that "
        "the group has reached and the queue's end; then the sum. - is an offset that was never stored. "
        "The exit status is 0 when all masters answered, 1 when none knows the group or the topic, 2 for a wrong command "
        "line, and 3 when not all masters answered, whatever the others said."
    )

    optParameters: ClassVar[list[list[Any]]] = [["topic", "t", None, "Only this topic."]]

    def __init__(self) -> None:
        super().__init__()
        self.group = ""

    def parseArgs(self, group: str | None = None) -> None:
        """Take the group."""
        if group is None:
            raise usage.UsageError("GROUP is missing")
        self.group = group

    def postOptions(self) -> None:
        """Refuse names that none can have."""
        topic = self["topic"]
        for what, text, fault in (
            ("group", self.group, group_fault(self.group)),
            ("--topic", topic, None if topic is None else topic_fault(topic)),
        ):
            if fault is not None:
                raise usage.UsageError(f"{what} {text!r}: {fault}")

    def run(self) -> int:
        """Print the lag; return the exit status."""
        show_log(LogLevel.critical)
        return run(NAME, self._print_lag, (CommandError, RocketMQError))

    async def _print_lag(self, reactor: Any) -> int:
        client = self.make_client(reactor)
        client.startService()
        try:
            answers = await ask_masters(client, lambda address: self._ask(client, address))
        finally:
            await client.stopService()
        found = {name: lag for name, lag in answers.found.items() if lag is not None}
        if found:
            _show(found)
        answers.complain(NAME)
        if not found:
            topic = self["topic"]
            raise answers.nobody(f"knows the group {self.group}" if topic is None else f"has the topic {topic}")
        return NOT_ALL_ANSWERED if answers.failed else 0

    async def _ask(self, client: ClientInstance, address: str) -> ConsumerLag | None:
        """Ask a broker; None when it has no such group, or no such topic where one is asked for."""
        header = ConsumerLagRequestHeader(consumer_group=self.group, topic=self["topic"])
        response = await client.ask(address, RequestCode.GET_CONSUMER_LAG, header, timeout_ms=COUNT_TIMEOUT_MS)
        if response.code in (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST):
            return None
        return ConsumerLag.decode(check_response(address, response).body)


def _show(found: dict[str, ConsumerLag]) -> None:
    show(*_COLUMNS, sep="\t")
    for broker, lag in found.items():
        for queue in lag.queues:
            show(
                broker,
                queue.topic,
                str(queue.queue_id),
                f"{'' if queue.exact else '~'}{queue.messages}",
                f"{queue.delay_millis / 1000:.1f}",
                "-" if queue.consumer_offset < 0 else str(queue.consumer_offset),
                str(queue.max_offset),
                sep="\t",
            )
    lags = found.values()
    exact = all(queue.exact for lag in lags for queue in lag.queues)
    behind = sum(lag.total_messages for lag in lags)
    seconds = max(lag.max_delay_millis for lag in lags) / 1000
    state = "online" if any(lag.online for lag in lags) else "offline"
    show("all", state, "", f"{'' if exact else '~'}{behind}", f"{seconds:.1f}", "", "", sep="\t")
