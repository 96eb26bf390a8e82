"""rocketd produce, consume, message and dlq: send, print and find messages."""
