"""What a broker counts of topics and groups, as VIEW_BROKER_STATS_DATA tells it."""
