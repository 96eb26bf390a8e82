"""The command `twistd rocketd-namesrv`.

Answers to NamesrvStartup: reads the options and makes the service. Imports nothing heavy until the service is made.
"""

from twisted.application.service import IService
from twisted.logger import Logger

from rocketd.common.options import DaemonOptions
from rocketd.namesrv.settings import NamesrvSettings

log = Logger()


class Options(DaemonOptions):
    """Options of the name server."""

    command = "rocketd-namesrv"
    settings_class = NamesrvSettings
    settings: NamesrvSettings


def makeService(options: Options) -> IService:
    """Make the name server that the options describe; nothing is opened before it starts."""
    from rocketd.namesrv.service import make_namesrv

    for warning in options.warnings:
        log.warn("{warning}", warning=warning)
    return make_namesrv(options.settings)
