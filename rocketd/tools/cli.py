"""The console script ``rocketd``: its commands, and the run of a command line.

Counterpart: the scripts in Apache's bin directory. The module of a command is imported when the command is run.
"""

import os
from collections.abc import Sequence
from typing import Final

from rocketd.common.command_line.commands import LazyGroup, run_command_line

COMPLETION_VARIABLE: Final = "_ROCKETD_COMPLETE"
"""Set by the completion of a shell; its value is the request."""

ROCKETD: Final = LazyGroup(
    "rocketd",
    {
        "try": (
            "rocketd.tools.servers.try_out:try_command",
            "Start both servers, send and consume a message, and stop.",
        ),
        "up": ("rocketd.tools.servers.up:up_command", "Run a name server and a broker in the foreground."),
        "produce": ("rocketd.tools.messages.produce:produce_command", "Send messages."),
        "consume": ("rocketd.tools.messages.consume:consume_command", "Print messages on arrival."),
        "lag": ("rocketd.tools.cluster.lag:lag_command", "Print the lag of a consumer group."),
        "groups": ("rocketd.tools.cluster.groups:groups_command", "Print the problems within consumer groups."),
        "namesrv": (
            "rocketd.tools.servers.run_servers:namesrv_group",
            "Run a name server, list them and change their settings.",
        ),
        "console": ("rocketd.tools.servers.run_servers:console_group", "Run the console for browsers."),
        "cluster": ("rocketd.tools.command_groups:cluster_group", "List and show clusters."),
        "broker": ("rocketd.tools.command_groups:broker_group", "Run a broker, list brokers and print their state."),
        "topic": ("rocketd.tools.command_groups:topic_group", "List, show, create and delete topics."),
        "group": ("rocketd.tools.command_groups:group_group", "List, show, create and delete consumer groups."),
        "offset": (
            "rocketd.tools.command_groups:offset_group",
            "Show, reset and clone the offsets of consumer groups.",
        ),
        "client": ("rocketd.tools.command_groups:client_group", "List the clients of a group that are online."),
        "config": ("rocketd.tools.command_groups:config_group", "Show and change the settings of brokers."),
        "acl": ("rocketd.tools.command_groups:acl_group", "List, change and delete the accounts of brokers."),
        "kv": ("rocketd.tools.command_groups:kv_group", "Read and change the key-value table of the name servers."),
        "message": ("rocketd.tools.command_groups:message_group", "Find messages by id or key."),
        "why": ("rocketd.tools.story.why:why_command", "Tell the story of a message."),
        "dlq": ("rocketd.tools.command_groups:dlq_group", "List, show and send again the dead letters of a group."),
        "completion": ("rocketd.tools.completion:completion_command", "Print a script for the completion of a shell."),
        "context": ("rocketd.tools.cluster.contexts:context_group", "Give names to clusters, and choose one of them."),
        "doctor": ("rocketd.tools.doctor.command:doctor_command", "Find faults of this machine and of a cluster."),
        "audit": ("rocketd.tools.admin.audit:audit_command", "Print the last changes by administrators."),
        "tls": ("rocketd.tools.command_groups:tls_group", "Make and show certificates."),
        "adopt": (
            "rocketd.tools.migration.command:adopt_command",
            "Check whether rocketd can take over a store of Apache's broker.",
        ),
        "give-back": (
            "rocketd.tools.migration.command:give_back_command",
            "Check whether Apache's broker can take over a store.",
        ),
        "store": ("rocketd.tools.store.commands:store_group", "Inspect, verify, dump or repair a stopped store."),
        "spark": ("rocketd.spark.cli:spark", "Archive, replay, query and check messages with Spark."),
    },
    help="Work with the messages, groups and stores of a RocketMQ cluster.",
    elsewhere={
        "pub": "produce",
        "publish": "produce",
        "send": "produce",
        "sub": "consume",
        "subscribe": "consume",
        "tail": "consume",
        "topics": "topic list",
        "brokers": "broker list",
        "clusters": "cluster list",
        "server": "up",
        "start": "up",
        "bench": "produce TOPIC MESSAGE --count N, or python -m benchmarks in a clone",
        "health": "doctor",
        "migrate": "adopt",
    },
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 1 if it failed, 2 if the command line was wrong."""
    if (asked := os.environ.get(COMPLETION_VARIABLE)) is not None:
        from click.shell_completion import shell_complete

        return shell_complete(ROCKETD, {}, "rocketd", COMPLETION_VARIABLE, asked)
    return run_command_line(ROCKETD, "rocketd", arguments)
