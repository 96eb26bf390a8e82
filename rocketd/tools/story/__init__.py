"""The story of one message: its place, the groups that read it, its retries, dead letters and trace."""
