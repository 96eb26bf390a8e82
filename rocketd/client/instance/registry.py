"""The instances of this process, shared by producers and consumers with equal configs.

Counterpart: `MQClientManager` (Apache). Each function belongs to the reactor thread of its instances.
"""

from typing import Literal

from rocketd.client.errors import IllegalOptionError
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.client.runtime.fork import at_fork_in_child
from rocketd.client.settings.config import ClientConfig
from rocketd.common.event_loop.reactor import IReactor

Kind = Literal["producer", "consumer", "admin"]


class _Shared:
    def __init__(self, reactor: IReactor, config: ClientConfig) -> None:
        self.reactor = reactor
        self.config = config
        self.instance = ClientInstance(reactor, config)
        self.claims: list[tuple[Kind, str]] = []


_shared: list[_Shared] = []
at_fork_in_child(_shared.clear)


def acquire(reactor: IReactor, config: ClientConfig, kind: Kind, group: str) -> ClientInstance:
    """Return a started instance of the config. Give it back with ``release``.

    Without an instance name in the config, an instance has one member per kind and group. A second one gets another instance
    with another client id. Raises IllegalOptionError if an instance name is in use with other options.
    """
    for shared in _shared:
        if shared.reactor is not reactor:
            continue
        if shared.config == config and (config.instance_name is not None or (kind, group) not in shared.claims):
            shared.claims.append((kind, group))
            return shared.instance
        if shared.config != config and _same_client(shared.config, config):
            raise IllegalOptionError(
                f"instance_name={config.instance_name!r} is in use in this process with other options: give the same "
                "ClientConfig, or another instance_name"
            )
    fresh = _Shared(reactor, config)
    fresh.claims.append((kind, group))
    _shared.append(fresh)
    fresh.instance.startService()
    return fresh.instance


def instances_on(reactor: IReactor) -> list[ClientInstance]:
    """Return the instances on a reactor. Call it in the reactor's thread."""
    return [shared.instance for shared in list(_shared) if shared.reactor is reactor]


def _same_client(one: ClientConfig, other: ClientConfig) -> bool:
    if one.instance_name is None or one.name_servers() != other.name_servers():
        return False
    if one.name_server_url != other.name_server_url:
        return False
    return (one.client_ip, one.instance_name, one.unit_name) == (other.client_ip, other.instance_name, other.unit_name)


async def release(instance: ClientInstance, kind: Kind, group: str) -> None:
    """Give an instance back. After its last member, return when its connections are closed."""
    for shared in _shared:
        if shared.instance is instance:
            shared.claims.remove((kind, group))
            if not shared.claims:
                _shared.remove(shared)
                await instance.stopService()
            return
