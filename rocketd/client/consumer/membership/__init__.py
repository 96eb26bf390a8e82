"""A consumer as a member of its group: topics, rebalance, assigned queues, joining, leaving and positions."""
