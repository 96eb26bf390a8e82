"""The parts below FastStream's broker, subscribers and publishers: options, messages, results, producer and groups."""
