"""The master's side: slaves are admitted, get the log, and hear of changed tables."""
