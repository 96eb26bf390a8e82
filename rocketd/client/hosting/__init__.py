"""Where the engine's reactor comes from when the application runs none: an asyncio loop or a thread of its own."""
