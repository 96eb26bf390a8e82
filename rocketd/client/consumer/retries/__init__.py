"""Messages that were not consumed: results that ask for it, the way back to a broker, and dead letters."""
