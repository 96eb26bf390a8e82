"""The slave's side: it follows the log and the tables of its master."""
