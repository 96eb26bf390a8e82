"""Helpers that rings of tests share, and the benchmarks too: servers to start, free ports, stores, a plain wire client."""
