"""The command `twistd rocketd-broker`.

Answers to BrokerStartup: reads the options and makes the service. Imports nothing heavy until the service is made.
"""

from twisted.application.service import IService

from rocketd.broker.settings import BrokerSettings
from rocketd.common.options import DaemonOptions


class Options(DaemonOptions):
    """Options of the broker."""

    command = "rocketd-broker"
    settings_class = BrokerSettings
    settings: BrokerSettings


def makeService(options: Options) -> IService:
    """Make the broker that the options describe; nothing is opened before it starts."""
    from rocketd.broker.service import START_ERRORS, make_broker

    return options.make(lambda: make_broker(options.settings), START_ERRORS)
