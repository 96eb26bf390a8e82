"""Loops over a group of dispatched records: the work of the dispatch for every single record.

Pure functions, compiled if a C compiler is present. No counterpart in Apache, which dispatches records one by one.
"""

from collections.abc import Callable, Sequence
from typing import Any

from rocketd.store.base.layout import CONSUME_QUEUE_ENTRY
from rocketd.store.format.message import SYS_FLAG_TRANSACTION_PREPARED, Arrival, DispatchRequest


def requests_by_queue(requests: Sequence[DispatchRequest]) -> dict[tuple[str, int], list[DispatchRequest]]:
    """Group records by topic and queue id. Prepared messages are left out: they have no place in a queue."""
    prepared: int = SYS_FLAG_TRANSACTION_PREPARED
    groups: dict[tuple[str, int], list[DispatchRequest]] = {}
    group: list[DispatchRequest] = []
    topic = ""
    queue_id = -1
    for request in requests:
        sys_flag: int = request.sys_flag
        if sys_flag & prepared:
            continue
        this_topic: str = request.topic
        this_queue: int = request.queue_id
        if this_queue != queue_id or this_topic != topic or not group:
            topic = this_topic
            queue_id = this_queue
            key = (topic, queue_id)
            found = groups.get(key)
            if found is None:
                found = groups[key] = []
            group = found
        group.append(request)
    return groups


def queue_entries(requests: Sequence[DispatchRequest]) -> bytes:
    """Return the entries of a consume queue for records, one after another."""
    pack: Any = CONSUME_QUEUE_ENTRY.pack
    return b"".join([pack(r.physical_offset, r.size, r.tags_code) for r in requests])


def arrivals_of(requests: Sequence[DispatchRequest]) -> list[Arrival]:
    """Return the arrivals of records that are in a queue now."""
    prepared: int = SYS_FLAG_TRANSACTION_PREPARED
    arrivals: list[Arrival] = []
    for r in requests:
        sys_flag: int = r.sys_flag
        if not sys_flag & prepared:
            arrivals.append(
                (r.topic, r.queue_id, r.queue_offset + 1, r.tags_code, r.store_timestamp, r.properties, r.bitmap)
            )
    return arrivals


def is_any_awaited(requests: Sequence[DispatchRequest], is_awaited: Callable[[str, int], bool]) -> bool:
    """Return whether a reader waits for one of the records. Neighbours of one queue are looked up once."""
    topic = ""
    queue_id = -1
    for request in requests:
        this_topic: str = request.topic
        this_queue: int = request.queue_id
        if this_queue != queue_id or this_topic != topic:
            topic = this_topic
            queue_id = this_queue
            if is_awaited(topic, queue_id):
                return True
    return False
