"""Chaos: clients under way while brokers, name servers and other clients end, and an account of every message."""
