"""The way of messages from a broker into an assigned queue: pulls, the messages held, and locks at the brokers."""
