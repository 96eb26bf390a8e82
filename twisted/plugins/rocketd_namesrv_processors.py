"""The name server's own request processors, found by ``twisted.plugin`` as those of third parties are."""

from typing import Any

from twisted.plugin import IPlugin
from zope.interface import implementer

from rocketd.remoting.interfaces import IProcessorPlugin, IRequestProcessor
from rocketd.remoting.wire.codes import RequestCode

POOL = "namesrv"
REGISTRATIONS_POOL = "registrations"
"""One thread: registrations, closed connections and the scan of silent brokers take effect in the order they came."""
ROUTE_POOL = "routes"
"""A thread of its own: a registration of thousands of topics does not hold up those who ask for a route."""


@implementer(IPlugin, IProcessorPlugin)
class _RoutePlugin:
    name = "rocketd.namesrv.routes"
    daemon = "namesrv"
    codes = (RequestCode.GET_ROUTEINFO_BY_TOPIC,)
    pool = ROUTE_POOL

    def create(self, daemon: Any) -> IRequestProcessor:
        from rocketd.namesrv.route_answers import RouteAnswers
        from rocketd.namesrv.route_processor import RouteProcessor

        answers = RouteAnswers(daemon.routes, daemon.kv_config, daemon.settings.namesrv)
        return RouteProcessor(answers, daemon.dispatcher, daemon.dispatcher.pool(ROUTE_POOL))


@implementer(IPlugin, IProcessorPlugin)
class _RegistrationsPlugin:
    name = "rocketd.namesrv.registrations"
    daemon = "namesrv"
    codes = (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.QUERY_DATA_VERSION)
    pool = REGISTRATIONS_POOL

    def create(self, daemon: Any) -> IRequestProcessor:
        from rocketd.namesrv.processor import NamesrvProcessor

        return NamesrvProcessor(daemon)


@implementer(IPlugin, IProcessorPlugin)
class _NamesrvPlugin:
    name = "rocketd.namesrv"
    daemon = "namesrv"
    codes = (
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ADMIN_CHANGES,
    )
    pool = POOL

    def create(self, daemon: Any) -> IRequestProcessor:
        from rocketd.namesrv.processor import NamesrvProcessor

        return NamesrvProcessor(daemon)


registrations_plugin = _RegistrationsPlugin()
route_plugin = _RoutePlugin()
namesrv_plugin = _NamesrvPlugin()
