"""Where the masters of a cluster are, for commands that ask all of them.

Answers to the first step of most mqadmin commands.
"""

from rocketd.client.errors import check_response
from rocketd.client.instance.client_instance import TIMEOUT_MS, ClientInstance
from rocketd.remoting.bodies import ClusterInfo
from rocketd.remoting.codes import RequestCode
from rocketd.remoting.command import RemotingCommand

MASTER_ID = 0


async def find_masters(client: ClientInstance) -> dict[str, str]:
    """Ask the name server for the addresses of all masters, by name. Raises ClientError or RemotingError."""
    request = RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)
    response = check_response("the name server", await client.remoting.invoke_sync(None, request, TIMEOUT_MS))
    brokers = ClusterInfo.decode(response.body).broker_addr_table
    return {name: data.broker_addrs[MASTER_ID] for name, data in brokers.items() if MASTER_ID in data.broker_addrs}
