"""Commands, groups of commands, and the run of a command line.

Every command takes its options before and after its arguments; ``--`` ends the options. ``--help`` and ``--version`` are
options of every command. A command's function returns its exit status.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from rocketd.common.command_line.errors import CommandError, OutputClosedError
from rocketd.common.command_line.output import complain, give_up_output
from rocketd.common.imports import without_collection
from rocketd.common.process.version import version_text
from rocketd.common.suggest import did_you_mean

_WRONG = 2
"""Exit status of a wrong command line."""
_OF_CLICK = ("Got unexpected ", "Option ")
"""How the remaining messages of click begin."""
_OTHER_WORDS = {
    "--tag": "--tags",
    "--key": "--keys",
    "--header": "--property",
    "--headers": "--property",
    "--properties": "--property",
    "--delay": "--deliver-after",
    "--after": "--deliver-after",
    "--bootstrap-server": "--namesrv",
    "--bootstrap-servers": "--namesrv",
    "--brokers": "--namesrv",
    "--server": "--namesrv",
    "--namesrvAddr": "--namesrv",
    "--from-beginning": "--from earliest",
    "--begin": "--from",
    "--offset": "--from",
    "--start": "--from",
    "--limit": "--count",
    "--max": "--count",
    "--max-messages": "--count",
    "--num": "--count",
    "--partition": "--queue",
    "--partitions": "--queues",
    "--durable": "--group",
    "--consumer-group": "--group",
}
"""Words for options in other tools, and for options with the Python client's names."""
_SETTINGS = {"help_option_names": ["-h", "--help"]}
_OF_EVERY_COMMAND = (*_SETTINGS["help_option_names"], "--version")
"""Options never suggested: none of them does the meant thing."""


class RocketdCommand(click.Command):
    """A command. An error of the user's ends it with one line."""

    def __init__(self, name: str | None, **attributes: Any) -> None:
        settings = _SETTINGS | attributes.pop("context_settings", {})
        super().__init__(name, context_settings=settings, options_metavar="[options]", **attributes)
        self.params.append(_version_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments into the context. Raises UsageError."""
        with _errors_of(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> int:
        """Run the command's function and return the exit status. A CommandError becomes a line on standard error."""
        try:
            with _errors_of(ctx):
                status: int = super().invoke(ctx)
        except CommandError as error:
            complain(str(error), ctx.command_path)
            return error.status
        return status


def command(name: str, **attributes: Any) -> Callable[[Callable[..., int]], RocketdCommand]:
    """Make a command of a function, whose docstring is the help. `attributes` are those of `click.Command`."""
    return click.command(name, cls=RocketdCommand, **attributes)


class LazyGroup(click.Group):
    """A group of commands. The module of a command is imported when the command is run, not for the group's help.

    `lazy` has, by name, the place of each command (``module:attribute``) and one sentence about it. `noun` is the word for
    a command in the help and in messages. `elsewhere` has the names of commands in other tools, with the words to type.
    """

    def __init__(
        self,
        name: str,
        lazy: Mapping[str, tuple[str, str]],
        *,
        help: str,  # noqa: A002 - the name is click's
        epilog: str | None = None,
        noun: str = "command",
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            name,
            callback=self._refuse_nothing,
            invoke_without_command=True,
            help=help,
            epilog=epilog,
            context_settings=_SETTINGS,
            options_metavar="",
            subcommand_metavar=f"{noun.upper()} [options]",
        )
        self._lazy = lazy
        self._noun = noun
        self._elsewhere = elsewhere or {}
        self.params.append(_version_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options of the group into the context. Raises UsageError."""
        with _errors_of(ctx):
            return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of their declaration."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of this name. Imports its module."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        with without_collection():
            found: click.Command = getattr(import_module(module), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command and its arguments. Raises UsageError with the nearest name for an unknown command."""
        if args[0] not in self._lazy:
            if ctx.resilient_parsing:  # the completion of a shell must stay silent
                return None, None, []
            word = self._elsewhere.get(args[0])
            hint = f"; use {ctx.command_path} {word}" if word else did_you_mean(args[0], self._lazy)
            raise click.UsageError(f"there is no {self._noun} {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options with this beginning. Imports no module of a command."""
        names = [CompletionItem(name, help=sentence) for name, (_, sentence) in self._lazy.items()]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [item for item in names if item.value.startswith(incomplete)] + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and sentences of the commands."""
        with formatter.section(f"{self._noun.capitalize()}s"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in self._lazy.items()])

    def _refuse_nothing(self) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            raise click.UsageError(f"a {self._noun} is missing: {', '.join(self._lazy)}", context)


def run_command_line(group: click.Group, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status. `arguments` are those of the process unless they are given.

    The status is 0, or 1 if the command failed, or the command's own; 2 for a wrong command line. It is 1
    without a message if the reader of the output has gone.
    """
    try:
        try:
            with group.make_context(program, list(sys.argv[1:] if arguments is None else arguments)) as context:
                status: int = group.invoke(context)
        finally:
            sys.stdout.flush()
    except click.exceptions.Exit as left:
        return left.exit_code
    except BrokenPipeError:
        give_up_output()
        return 1
    except OutputClosedError:
        return 1
    except click.UsageError as error:
        path = program if error.ctx is None else error.ctx.command_path
        complain(f"{_text(error)}; try {path} --help", path)
        return _WRONG
    return status


@contextmanager
def _errors_of(context: click.Context) -> Iterator[None]:
    """Note in each UsageError which command it belongs to; click's parser leaves that out in some."""
    try:
        yield
    except click.UsageError as error:
        error.ctx = error.ctx or context
        raise


def _text(error: click.UsageError) -> str:
    """Return what is wrong with a command line, in our own words where click has others."""
    if isinstance(error, click.NoSuchOption):
        return f"option {error.option_name} not recognized{_meant(error.option_name, _option_names(error.ctx))}"
    if isinstance(error, click.MissingParameter):
        return f"{_name(error)} is missing"
    if isinstance(error, click.BadParameter):
        name = _name(error)
        return f"{_from_environment(error) or (name if name.startswith('-') else name.lower())} {error.message}"
    text = error.format_message()
    return text[:1].lower() + text[1:].rstrip(".") if text.startswith(_OF_CLICK) else text


def _meant(given: str, known: Collection[str]) -> str:
    """Return the hint at the right option, nothing if there is none.

    A word of another tool gets no hint at a similar option.
    """
    word = _OTHER_WORDS.get(given)
    if word is None:
        return did_you_mean(given, [name for name in known if name not in _OF_EVERY_COMMAND])
    return f"; use {word}" if word.partition(" ")[0] in known else ""


def _from_environment(error: click.BadParameter) -> str | None:
    """Return the name of the environment variable with the bad value, None if it is on the command line."""
    context, param = error.ctx, error.param
    if context is None or param is None or param.name is None:
        return None
    if context.get_parameter_source(param.name) is not ParameterSource.ENVIRONMENT:
        return None
    return f"environment variable {param.envvar}"


def _name(error: click.BadParameter) -> str:
    if error.param is None:
        return "the command line"
    if isinstance(error.param, click.Option):
        return max(error.param.opts, key=len)
    return error.param.human_readable_name


def _option_names(context: click.Context | None) -> Collection[str]:
    if context is None:
        return []
    return [name for option in context.command.get_params(context) for name in option.opts]


def _version_option() -> click.Option:
    def show_version(ctx: click.Context, _: click.Parameter, given: bool) -> None:
        if given and not ctx.resilient_parsing:
            click.echo(version_text())
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show_version,
        help="Print the version and the kind of core, and exit.",
    )
