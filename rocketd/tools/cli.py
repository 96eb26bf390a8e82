"""The console script ``rocketd``: finds the command and runs it.

Answers to the scripts in Apache's bin directory. The commands' modules are imported when one is run.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar

from twisted.python import usage

from rocketd.common.command_line import CommandLine, give_up_output

_COMMANDS = {
    "up": ("rocketd.tools.up", "UpOptions", "Run a name server and a broker in the foreground."),
    "produce": ("rocketd.tools.produce", "ProduceOptions", "Send messages."),
    "consume": ("rocketd.tools.consume", "ConsumeOptions", "Print messages as they come."),
    "lag": ("rocketd.tools.lag", "LagOptions", "Print how far a consumer group is behind."),
    "groups": ("rocketd.tools.groups", "GroupsOptions", "Print what is wrong within consumer groups."),
    "store": ("rocketd.tools.store", "StoreOptions", "Inspect, verify, dump or repair a stopped store."),
    "spark": ("rocketd.tools.spark", "SparkOptions", "Archive, replay, query and check messages with Spark."),
}


def _parser(module: str, name: str) -> Any:
    return lambda: getattr(import_module(module), name)()


class Options(CommandLine):
    """Options of the console script itself."""

    synopsis = "Usage: rocketd COMMAND [options]"
    longdesc = "Servers that run on their own are started with twistd: twistd rocketd-namesrv, twistd rocketd-broker."

    subCommands: ClassVar[list[Any]] = [
        [command, None, _parser(module, name), doc] for command, (module, name, doc) in _COMMANDS.items()
    ]

    def postOptions(self) -> None:
        """Refuse a command line without a command."""
        if self.subCommand is None:
            raise usage.UsageError(f"a command is missing: {', '.join(_COMMANDS)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status: 0, 1 when it failed, 2 when it was asked wrongly.

    Output that nobody reads any more is a failure without a word.
    """
    options = Options()
    try:
        try:
            options.parseOptions(sys.argv[1:] if arguments is None else arguments)
            status: int = options.subOptions.run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        give_up_output()
        return 1
    except usage.UsageError as error:
        command = f"rocketd {options.subCommand}" if options.subCommand else "rocketd"
        print(f"{command}: {error}; try {command} --help", file=sys.stderr)
        return 2
    return status
