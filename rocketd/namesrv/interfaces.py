"""What a processor plugin of the name server is given.

Apache passes its NamesrvController; processors here get no more than this.
"""

from zope.interface import Attribute, Interface


class INameServer(Interface):
    """The name server, as the ``create`` method of a processor plugin sees it."""

    settings = Attribute("The NamesrvSettings in effect.")
    routes = Attribute("The RouteInfoManager; its methods may be called from any thread.")
    kv_config = Attribute("The KVConfigManager; its methods may be called from any thread.")
    dispatcher = Attribute("The Dispatcher that the processor will be registered with.")

    def store_settings(changes: dict[str, str]) -> None:
        """Write keys and values into the file ``configStorePath``; other lines stay. Blocks. Raises OSError."""
