"""The name server's own request processors, found by ``twisted.plugin`` as those of third parties are."""

from typing import Any

from twisted.plugin import IPlugin
from zope.interface import implementer

from rocketd.remoting.interfaces import IProcessorPlugin, IRequestProcessor

POOL = "namesrv"
"""One thread: requests, closed connections and the scan of silent brokers take effect in the order they came."""


@implementer(IPlugin, IProcessorPlugin)
class _RoutePlugin:
    name = "rocketd.namesrv.routes"
    daemon = "namesrv"
    codes = (105,)
    pool = POOL

    def create(self, daemon: Any) -> IRequestProcessor:
        from rocketd.namesrv.route_answers import RouteAnswers
        from rocketd.namesrv.route_processor import RouteProcessor

        answers = RouteAnswers(daemon.routes, daemon.kv_config, daemon.settings.namesrv)
        return RouteProcessor(answers, daemon.dispatcher)


@implementer(IPlugin, IProcessorPlugin)
class _NamesrvPlugin:
    name = "rocketd.namesrv"
    daemon = "namesrv"
    codes = (100, 101, 102, 103, 104, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327)
    pool = POOL

    def create(self, daemon: Any) -> IRequestProcessor:
        from rocketd.namesrv.processor import NamesrvProcessor

        return NamesrvProcessor(daemon)


route_plugin = _RoutePlugin()
namesrv_plugin = _NamesrvPlugin()
