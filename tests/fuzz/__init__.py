"""Fuzzers of the wire, the parsers and the files."""
