"""What to read: queues, offsets, splits and limits, worked out from a catalog. Pure but for what they ask of it."""
