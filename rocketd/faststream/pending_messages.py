"""The pending messages of a subscriber without handlers, from which messages are taken one by one."""

import asyncio

from rocketd.faststream.base.message import Raw
from rocketd.faststream.base.settlement import Settlement

Item = tuple[Raw, Settlement]


class PendingMessages:
    """Messages delivered but not yet taken. Loop thread.

    A taken message counts as consumed when the next one is taken, unless it was settled before.
    """

    def __init__(self) -> None:
        self._items: asyncio.Queue[Item | None] = asyncio.Queue()
        self._out: Settlement | None = None
        self._closed = False

    def offer(self, raw: Raw, settlement: Settlement) -> None:
        """Add a message; after ``close``, give it up."""
        if self._closed:
            settlement.leave()
        else:
            self._items.put_nowait((raw, settlement))

    async def next(self, timeout: float | None) -> Item | None:
        """Return the next message; None after ``timeout`` seconds without one, or once it is closed."""
        self._consume_last()
        try:
            async with asyncio.timeout(timeout):
                item = await self._items.get()
        except TimeoutError:
            return None
        if item is None:
            self._items.put_nowait(None)  # for other waiting callers
            return None
        self._out = item[1]
        return item

    def close(self) -> None:
        """Take no more messages, and give up the messages not yet taken."""
        self._closed = True
        self._consume_last()
        while not self._items.empty():
            item = self._items.get_nowait()
            if item is not None:
                item[1].leave()
        self._items.put_nowait(None)

    def _consume_last(self) -> None:
        if self._out is not None:
            self._out.decide(None)
            self._out = None
