"""FastStream brokers in tests: started, and always stopped."""

import asyncio
from contextlib import asynccontextmanager

SECONDS = 60.0


@asynccontextmanager
async def started(*brokers):
    async with asyncio.timeout(SECONDS):
        for broker in brokers:
            await broker.start()
        try:
            yield brokers[0]
        finally:
            for broker in brokers:
                await broker.stop()
