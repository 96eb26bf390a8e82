"""Messages of a subscriber without handlers, which are asked for one by one.

No counterpart in Apache.
"""

import asyncio

from rocketd.faststream.message import Raw
from rocketd.faststream.settlement import Settlement

Item = tuple[Raw, Settlement]


class Inbox:
    """What was delivered and not asked for yet. Loop thread.

    What was given out is consumed when the next is asked for, unless its message says otherwise before.
    """

    def __init__(self) -> None:
        self._items: asyncio.Queue[Item | None] = asyncio.Queue()
        self._out: Settlement | None = None
        self._closed = False

    def offer(self, raw: Raw, settlement: Settlement) -> None:
        """Take a message; after ``close`` it is left where it is."""
        if self._closed:
            settlement.leave()
        else:
            self._items.put_nowait((raw, settlement))

    async def next(self, timeout: float | None) -> Item | None:
        """Return the next message; None when there is none within ``timeout`` seconds, or at the end."""
        self._consume_last()
        try:
            async with asyncio.timeout(timeout):
                item = await self._items.get()
        except TimeoutError:
            return None
        if item is None:
            self._items.put_nowait(None)  # for whoever else asks
            return None
        self._out = item[1]
        return item

    def close(self) -> None:
        """Give out no more; what was not given out is left where it is."""
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
