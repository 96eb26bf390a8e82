"""The job that groups dead letters and sends them again.

`rows` describes dead letters and builds the messages to send, `state` records how far each queue was sent, and `job` is
the command.
"""
