"""Commit-log records as columns: each module makes some of a batch's columns, with no Python for the single message."""
