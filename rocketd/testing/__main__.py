"""A cluster for tests in any language: ``python -m rocketd.testing`` prints an address, then obeys standard input.

The commands are in `console`. The end of the input stops the cluster.
"""

import argparse
import re
import sys
from contextlib import ExitStack
from typing import TextIO

from rocketd.acl.accounts import AccountConfig
from rocketd.client.errors import UsageError
from rocketd.testing.cluster import Cluster
from rocketd.testing.console import CommandConsole, usage_text

ALL = "PUB|SUB"


def parse_account(text: str) -> AccountConfig:
    """Parse an account, ``KEY:SECRET`` or ``KEY:SECRET:RIGHT,RIGHT``. Raises ArgumentTypeError.

    A right is ``admin``, ``Orders=PUB|SUB`` for a topic, or ``group:shop=SUB``. Without any, the account may use all
    topics and groups.
    """
    key, colon, rest = text.partition(":")
    secret, _, rights = rest.partition(":")
    if not key or not colon or not secret:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY:SECRET or KEY:SECRET:RIGHT,RIGHT")
    topics: list[str] = []
    groups: list[str] = []
    account = AccountConfig(key, secret, topic_perms=topics, group_perms=groups)
    if not rights:
        account.default_topic_perm = account.default_group_perm = ALL
    for right in rights.split(",") if rights else ():
        name, colon, group = right.partition(":")
        if right == "admin":
            account.admin = True
        elif name == "group" and group:
            groups.append(group)
        elif not colon:
            topics.append(right)
        else:
            raise argparse.ArgumentTypeError(
                f"{right!r} is not admin, a right such as Orders=PUB, or one such as group:shop=SUB"
            )
    return account


def parse_brokers(text: str) -> int | list[str]:
    """Parse a number of brokers, or their names."""
    return int(text) if re.fullmatch(r"-?\d+", text) else text.split(",")


def main(arguments: list[str] | None = None, source: TextIO = sys.stdin, target: TextIO = sys.stdout) -> None:
    """Run a cluster until the end of the input."""
    parser = argparse.ArgumentParser(
        prog="python -m rocketd.testing",
        description="a name server and brokers for tests, on loopback sockets, with a clock moved by the input",
        epilog=usage_text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="port of the name server (default: a free one)")
    parser.add_argument("--topic", action="append", default=[], help="topic created at the start; repeatable")
    parser.add_argument(
        "--brokers", type=parse_brokers, default=1, metavar="N", help="number of masters, or their names with commas"
    )
    parser.add_argument("--slaves", type=int, default=0, metavar="N", help="number of slaves of each master")
    parser.add_argument(
        "--broker",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of all brokers, with Apache's key; repeatable",
    )
    parser.add_argument(
        "--tls",
        nargs="?",
        const="enforcing",
        default=False,
        choices=("enforcing", "permissive"),
        help="TLS; plain connections are refused, or with permissive accepted. See the command ca",
    )
    parser.add_argument(
        "--account",
        action="append",
        default=[],
        type=parse_account,
        metavar="KEY:SECRET[:RIGHT,...]",
        help="account without which brokers refuse requests; repeatable. A right is admin, Orders=PUB|SUB for a topic, or "
        "group:shop=SUB; without any, all topics and groups are allowed",
    )
    options = parser.parse_args(arguments)
    settings = {name: value for name, _, value in (pair.partition("=") for pair in options.broker)}
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(
                Cluster(
                    topics=options.topic,
                    brokers=options.brokers,
                    slaves=options.slaves,
                    broker=settings,
                    tls=options.tls,
                    accounts=options.account,
                )
            )
            address = cluster.listen(options.port)
        except UsageError as error:
            parser.error(str(error))
        print(address, file=target, flush=True)
        obey(CommandConsole(cluster), source, target)


def obey(console: CommandConsole, source: TextIO, target: TextIO) -> None:
    """Answer the lines of the input until its end, or the command ``stop``."""
    for line in source:
        if line.strip():
            answer = console.answer(line)
            if console.stopped:
                return
            print(answer, file=target, flush=True)


if __name__ == "__main__":
    main()
