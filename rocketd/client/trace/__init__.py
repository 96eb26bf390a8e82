"""Message trace: what became of each message, told by clients in messages of a topic of its own."""
