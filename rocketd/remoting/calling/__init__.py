"""The client side: connections, requests with deadlines, and addresses of name servers.

- `client`: requests to any address. `channel_table`, `client_connection`, `host_endpoint`: its connections.
- `invoke`, `rpc`, `waiters`, `deadlines`, `permits`: requests from sending to completion, also for the server's own
  requests to its clients.
- `name_servers`, `address_server`: the list of name servers. `signing`: signatures. `callback_threads`: callbacks.

Every request ends exactly once: answered, timed out, not written, or its connection closed. A request leaves the table
before its waiter is called. Everything belongs to the reactor thread, except for methods named `*from_thread` and the
functions run by an executor.
"""
