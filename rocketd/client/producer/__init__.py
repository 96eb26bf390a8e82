"""Producers: messages, batches, transactions, and requests with replies.

`producer.ProducerEngine` has the public methods. `outgoing` encodes messages, `sender` chooses a queue, asks its broker and
retries, `queue_choice` and `faults` decide on the queue, `transaction` and `request_reply` add their protocols.

Everything belongs to the reactor thread, except plain functions of the application, which run in `ProducerEngine.threads`.
A failed send is retried only if the caller left the choice of the queue to the producer, and all tries share its timeout.
"""
