"""The name server: which broker serves which topic."""
