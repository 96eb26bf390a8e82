"""Message filters of consumer groups: the subscription of a pull, SQL92 filters with their bitmaps, and their file."""
