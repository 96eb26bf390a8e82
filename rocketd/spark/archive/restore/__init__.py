"""A store made from an archive, and its comparison with the archive."""
