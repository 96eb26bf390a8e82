"""SQL92 filters: expressions over the properties of messages, and the bitmaps of the groups whose filters match."""
