"""Requests about queues and messages, and the reset of a group's offsets."""
