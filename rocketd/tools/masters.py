"""Where the masters of a cluster are, for commands that ask all of them.

Answers to the first step of most mqadmin commands.
"""

from rocketd.client.errors import check_response
from rocketd.client.instance.client_instance import ClientInstance
from rocketd.remoting.bodies import ClusterInfo
from rocketd.remoting.codes import RequestCode

MASTER_ID = 0


async def find_masters(client: ClientInstance) -> dict[str, str]:
    """Ask the name server for the addresses of all masters, by name. Raises RocketMQError."""
    response = check_response("the name server", await client.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))
    brokers = ClusterInfo.decode(response.body).broker_addr_table
    return {name: data.broker_addrs[MASTER_ID] for name, data in brokers.items() if MASTER_ID in data.broker_addrs}
