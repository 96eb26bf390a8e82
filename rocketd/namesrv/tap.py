"""The command `twistd rocketd-namesrv`.

Answers to NamesrvStartup: reads the options and makes the service. Imports nothing heavy until the service is made.
"""

from twisted.application.service import IService

from rocketd.common.options import DaemonOptions
from rocketd.namesrv.settings import NamesrvSettings


class Options(DaemonOptions):
    """Options of the name server."""

    command = "rocketd-namesrv"
    settings_class = NamesrvSettings
    settings: NamesrvSettings


def makeService(options: Options) -> IService:
    """Make the name server that the options describe; nothing is opened before it starts."""
    from rocketd.namesrv.service import START_ERRORS, make_namesrv

    return options.make(lambda: make_namesrv(options.settings), START_ERRORS)
