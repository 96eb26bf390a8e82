"""Runs the application's handler: concurrently, in order, in chunks, with hooks around it."""
