"""The name server: maps topics to brokers.

- `service`: the server put together. `tap`: the twistd command. `settings`: its settings.
- `route_info`, `topic_queues`: the tables of brokers and topics. `kv_config`: the KV configuration.
- `route_processor`, `route_answers`: the frequent route queries. `processor`: all other requests.
- `address_rules`: which address of a broker a requester gets, by the network of the requester.

Registrations, closed connections and the scan of silent brokers run on one thread, in order. Routes are read from
snapshots by other threads. A table's lock is never held during I/O.
"""
