"""Settings of a daemon: their declarations, their sources, and changes at run time."""
