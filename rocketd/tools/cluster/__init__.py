"""Commands about a cluster: its brokers, topics and groups, lags, and the contexts that name clusters."""
