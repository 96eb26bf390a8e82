"""``rocketd completion``: print the script with which a shell completes the words of ``rocketd``."""

import click
from click.shell_completion import get_completion_class

from rocketd.common.command_line.commands import command
from rocketd.common.command_line.errors import CommandError
from rocketd.common.command_line.option_types import one_of
from rocketd.common.command_line.output import show
from rocketd.tools.cli import COMPLETION_VARIABLE


@command("completion")
@click.argument("shell", type=one_of("bash", "zsh", "fish"), metavar="bash|zsh|fish")
def completion_command(shell: str) -> int:
    """Print the script for a shell.

    In bash: eval "$(rocketd completion bash)". In zsh: eval "$(rocketd completion zsh)". In fish: rocketd completion fish
    | source.
    """
    found = get_completion_class(shell)
    if found is None:
        raise CommandError(f"this version of click cannot complete in {shell}")
    root = click.get_current_context().find_root().command
    show(found(root, {}, "rocketd", COMPLETION_VARIABLE).source())
    return 0
