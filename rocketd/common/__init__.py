"""Pure values shared by every layer: no I/O, no Twisted."""
