"""How the queues of a topic are shared among the consumers of a group, sans-io.

Answers to AllocateMessageQueueAveragely. Every consumer computes the same shares from the same sorted lists.
"""

from collections.abc import Iterable

from rocketd.remoting.bodies import MessageQueue


def allocate_averagely(client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]) -> list[MessageQueue]:
    """Return the share of one client: neighbouring queues, the first clients get one more; none if it is not listed."""
    ordered = sorted(queues)
    clients = sorted(client_ids)
    if client_id not in clients:
        return []
    index = clients.index(client_id)
    share, more = divmod(len(ordered), len(clients))
    begin = index * share + min(index, more)
    return ordered[begin : begin + share + (index < more)]
