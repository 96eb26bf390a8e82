"""Third-party code in a server: found, guarded, and known to a stop while it runs."""
