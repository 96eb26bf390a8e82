"""rocketd store: the files of a stopped store."""
