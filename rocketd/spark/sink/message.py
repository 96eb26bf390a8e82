"""A message made ready: what a row becomes, what is staged, and what is sent."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message as its broker is to store it.

    `properties` is the property string in UTF-8 and has the unique key; `sys_flag` the compression's bits. `key` is what
    its queue is chosen by; `queue_id`, and `broker` where several have such a queue, are the queue itself. None of them:
    any queue.
    """

    topic: str
    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    key: str | None = None
    queue_id: int | None = None
    broker: str | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes in a request, about."""
        return len(self.body) + len(self.properties) + 22
