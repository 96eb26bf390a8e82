"""Messages with a time of delivery of their own; docs/howto/timer-messages.md says what they do."""
