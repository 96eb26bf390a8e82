"""Delivery effectively once: rows are staged in files, and one process sends them and records it in a ledger."""
