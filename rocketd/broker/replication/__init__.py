"""Replication: slaves copy the log and the tables of their master.

- `as_master`: the master's side. `master` serves the port for slaves, one `slave_connection` each. Every broker has this
  side, because a slave may have slaves too. Without TLS, `log_sender` writes to the socket in the thread that appends.
- `as_slave`: the slave's side. `log_follower` follows a master through a `master_connection`. Without TLS, `log_receiver`
  reads, appends and reports in one thread.
- The tables: `synchronize` copies them on a slave; `table_changes` and `table_requests` announce changes on a master.
- Protection: `trusted_peers` tells which hosts may be masters or slaves; `slave_admission` and `ha_tls` decide which
  connections belong to slaves.
- Roles: `group` asks about brokers of the same name. `single_master` prevents a second master, and `returning` adopts
  entries and larger offsets from slaves before a master serves.

Everything belongs to the reactor thread, with exceptions named in the docstrings. One thread appends copied data: that of
the receiver or, with TLS, the storage thread. A slave compares its log before it continues (docs/decisions/0014). The
protocol is in docs/protocol/replication.md.
"""
