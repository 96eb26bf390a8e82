"""The tests, by ring, and the support that they share. They run from the root of the clone; nothing here is installed."""
