"""The configuration of a client, and the check of option types."""
