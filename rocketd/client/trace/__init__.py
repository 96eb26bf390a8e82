"""Message trace: clients report the sends and handling of each message in messages of a trace topic.

`hooks` makes trace contexts, `records` encodes them, and `dispatcher` gathers them into batches. `producer.tracing` and
`consumer.tracing` hook into the clients and send the batches. All of it belongs to the reactor thread. A trace never delays
or fails the traced message.
"""
