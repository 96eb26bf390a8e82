"""Logs: files, the journal, and a throttle for lines that a peer can cause at any rate."""
