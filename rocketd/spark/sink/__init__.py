"""Writing to topics: rows become messages, delivered in one of three ways.

`writers` are the objects Spark calls; `rows` turns rows into messages and checks every limit. `plain` delivers at least
once. `transactional` delivers in transactions, with half messages. `effectively_once` stages rows in files and keeps a
ledger of its progress, under a lock. All send through a `message_output`, one request in
flight for each queue.

Invariant of effectively once: a batch is in the ledger before its first message is sent, with fixed files and queues.
So after a crash only messages after the last noted offset of a queue are in doubt.

Reads import nothing from here. Code for tasks imports neither Twisted nor, apart from `writers`, PySpark.
"""
