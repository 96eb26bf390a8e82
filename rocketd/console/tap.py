"""The command `twistd rocketd-console`.

It reads the options and creates the service. Heavy imports wait until then.
"""

from twisted.application.service import IService

from rocketd.common.process.daemon_options import DaemonOptions
from rocketd.console.settings import ConsoleSettings

PACKAGES = ("klein", "jinja2")
"""Packages of the extra ``console``."""
MISSING = "the console needs packages that are not installed: run pip install '.[console]' in the clone of rocketd"


class Options(DaemonOptions):
    """Options of the console."""

    command = "rocketd-console"
    settings_class = ConsoleSettings
    settings: ConsoleSettings


def makeService(options: Options) -> IService:
    """Return the console for the options. It opens nothing before its start."""
    try:
        from rocketd.console.service import START_ERRORS, make_console
    except ModuleNotFoundError as error:
        if error.name not in PACKAGES:
            raise
        raise SystemExit(f"{options.command}: {MISSING}") from None
    return options.make(lambda: make_console(options.settings), START_ERRORS)
