"""The parts shared by all clients with one client id: connections, routes, heartbeats.

`registry` finds or creates the `ClientInstance` of a config. It has one remoting client, the `Routes`, and its members:
producers and consumers, by group. `server_requests` passes requests from brokers to the members.

Everything belongs to the reactor thread; long bodies are decoded in the callback executor (docs/decisions/0020). A client
id has only one producer and one consumer of a group, because brokers identify members by group and client id.
"""
