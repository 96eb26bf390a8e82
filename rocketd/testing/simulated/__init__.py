"""The surroundings of a server in a test: disk and network in memory, and a time that can be advanced."""
