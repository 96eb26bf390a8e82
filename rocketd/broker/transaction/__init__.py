"""Transactional messages: halves, what ends them, and the asking back about those that nobody ends."""
