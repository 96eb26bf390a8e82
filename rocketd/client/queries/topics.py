"""Creates a topic at the brokers of the cluster.

Counterpart: `MQAdminImpl.createTopic` (Apache).
"""

from rocketd.client.instance.all_of import all_of
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.common.names import DEFAULT_TOPIC_QUEUES
from rocketd.protocol import cluster
from rocketd.protocol.cluster import MASTER


async def create_topic(instance: ClientInstance, topic: str, queues: int = DEFAULT_TOPIC_QUEUES) -> None:
    """Create a topic, given with its namespace, at every master. Raises NoRouteError and BrokerError."""
    request = cluster.create_topic(topic, queues)
    info = await instance.answer_of_name_server(cluster.cluster_info())

    async def ask(address: str) -> None:
        request.result(address, await instance.ask(address, request.code, request.header))

    tables = [broker.broker_addrs for broker in info.broker_addr_table.values()]
    await all_of(ask(addresses[MASTER]) for addresses in tables if MASTER in addresses)
    instance.routes.forget(topic)
