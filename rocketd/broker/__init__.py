"""The broker: topics, groups, offsets and the request processors over one store."""
