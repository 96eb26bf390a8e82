"""Values that message hooks get.

Counterpart: `SendMessageContext`, `ConsumeMessageContext` (Apache).
"""

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class SendMessageContext:
    """One send, perhaps a batch. The second group of fields is set after it.

    - ``properties`` is Apache's property string; a hook may replace it before the message is stored.
    - ``born_host`` is the sender's address ``host:port``, ``born_timestamp`` its time in Unix milliseconds.
    - ``msg_id`` is the id in the answer; ``queue_offset`` is the first message's, -1 if nothing was stored.
    - ``code`` and ``remark`` are those of the answer, even for a one-way request.
    - ``trace`` is free for the hook.
    """

    producer_group: str
    topic: str
    queue_id: int
    properties: str
    body_length: int
    born_host: str
    born_timestamp: int
    broker_address: str
    is_batch: bool
    trace: Any = None

    code: int = -1
    remark: str | None = None
    msg_id: str = ""
    queue_offset: int = -1
    stored_size: int = 0


@dataclass(slots=True)
class ConsumeMessageContext:
    """One answer to a pull, or a message that was sent back.

    ``client_host`` is the consumer's address ``host:port``; ``size`` is the records' size in bytes; ``code`` is the
    answer's.
    """

    consumer_group: str
    topic: str
    queue_id: int
    client_host: str
    code: int
    messages: int = 0
    size: int = 0
