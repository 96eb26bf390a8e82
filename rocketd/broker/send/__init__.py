"""Sends: from a request to records in the store, and back to an answer.

`processor` stores producers' messages, `send_back` stores messages that a consumer failed to process. `message_check`
validates a send and finds its topic; `message_builder` and `half_messages` build the records. `durability` decides when
a stored message is durable, and `answers` encodes the response.

Everything that appends runs in the send pool's one thread, which is the storage thread (docs/decisions/0009). An answer
is sent by the thread that learns last that its messages are durable: storage, flush, reactor or table writer thread
(docs/decisions/0004).
"""
