"""How cost grows with topics, connections, groups, the store and messages; see `benchmarks.growth.compare`."""
