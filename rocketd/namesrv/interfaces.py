"""The name server as seen by processor plugins.

Apache passes its NamesrvController. Processors here get no more than this.
"""

from zope.interface import Attribute, Interface

from rocketd.namesrv.kv_config import KVConfigManager
from rocketd.namesrv.route_info import RouteInfoManager
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.serving.audit import Audit
from rocketd.remoting.serving.dispatch import Dispatcher


class INameServer(Interface):
    """The name server, as passed to the ``create`` method of a processor plugin."""

    settings: NamesrvSettings = Attribute("The NamesrvSettings in effect.")
    routes: RouteInfoManager = Attribute("The RouteInfoManager; its methods may be called from any thread.")
    kv_config: KVConfigManager = Attribute("The KVConfigManager; its methods may be called from any thread.")
    audit: Audit = Attribute("The Audit of changes by administrators; its methods may be called from any thread.")
    dispatcher: Dispatcher = Attribute("The Dispatcher for the processor.")

    def store_settings(changes: dict[str, str]) -> None:
        """Write keys and values to the file ``configStorePath`` and keep its other lines. Blocks. Raises OSError."""
