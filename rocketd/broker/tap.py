"""The command `twistd rocketd-broker`.

It reads the options and makes the service. Heavy modules are imported only when the service is made.

Counterpart: `BrokerStartup` (Apache).
"""

from twisted.application.service import IService

from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.process.daemon_options import DaemonOptions


class Options(DaemonOptions):
    """Options of the broker."""

    command = "rocketd-broker"
    settings_class = BrokerSettings
    settings: BrokerSettings


def makeService(options: Options) -> IService:
    """Make the broker from the options. Nothing is opened before it starts."""
    from rocketd.broker.service import START_ERRORS, make_broker
    from rocketd.remoting.wire.versions import set_own_version

    set_own_version(options.settings.remoting.version)
    return options.make(lambda: make_broker(options.settings), START_ERRORS)
