"""The command `twistd rocketd-namesrv`.

Counterpart: `NamesrvStartup` (Apache): reads the options and creates the service. Heavy imports wait until then.
"""

from twisted.application.service import IService

from rocketd.common.process.daemon_options import DaemonOptions
from rocketd.namesrv.settings import NamesrvSettings


class Options(DaemonOptions):
    """Options of the name server."""

    command = "rocketd-namesrv"
    settings_class = NamesrvSettings
    settings: NamesrvSettings


def makeService(options: Options) -> IService:
    """Return the name server for the options. It opens nothing before its start."""
    from rocketd.namesrv.service import START_ERRORS, make_namesrv
    from rocketd.remoting.wire.versions import set_own_version

    set_own_version(options.settings.remoting.version)
    return options.make(lambda: make_namesrv(options.settings), START_ERRORS)
