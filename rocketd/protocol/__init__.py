"""The parts of RocketMQ's client protocol without any connection.

Two clients speak this protocol: `rocketd.client`, on Twisted, and `rocketd.spark.wire`, which blocks, because no reactor
survives in the forked tasks of Spark. They differ in how they wait, retry and choose a queue. They agree on everything
here: the requests, the encoding of messages, and the reading of an answer.

- `errors`: the mistakes of a caller, and refusals by a server.
- `message`, `compression`, `batch`, `unique_keys`: a message, or several, as bytes.
- `send`, `pull`, `transaction`: headers of requests about messages, and their answers.
- `typed_request`: a request together with the type of its answer. `offsets` and `cluster` make requests.
- `queues`: the queues of a topic, by its route.

Nothing here opens a socket or reads the clock: the time is passed in. Nothing keeps state, except for the counter of
`UniqueKeys`. Only `rocketd.common` and the wire formats of `rocketd.remoting` are imported, so a module of this package
can be used without Twisted. Import contracts in setup.cfg check this.
"""
