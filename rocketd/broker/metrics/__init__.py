"""The metrics and the health of a broker.

- `runtime`: the values of brokerStatus, with the names of Apache's exporter.
- `traffic`: rates and sizes of the broker, its topics and groups.
- `groups`: how far consumer groups are behind, in messages and in time.
- `store`: the log, its durations, and replication.
- `health`: whether the broker works, and whether it should get requests.
- `endpoint`: all of them on one port.
"""
