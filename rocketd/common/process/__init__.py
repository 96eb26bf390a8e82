"""A daemon as a process: start, signals, service manager, cores and memory."""
