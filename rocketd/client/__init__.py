"""Clients of the servers."""
