"""Benchmarks: the load generator, the peers it is pointed at, and what compares them."""
