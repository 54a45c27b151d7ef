"""The client for asyncio: the same calls, each in a thread of its own."""
