"""Common parts around Twisted's reactor: its type, timers, loops on a clock, and its lag."""
