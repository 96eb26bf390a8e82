"""Servers to compare with: how to fetch, start, await and stop them."""
