"""Offsets of a group: where they are stored, the first one of a queue, and early commits."""
