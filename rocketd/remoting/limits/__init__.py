"""Limits on the resources that strangers may use: connections, incomplete frames, unsent bytes, log lines.

- `admission`: which accepted connections are kept. `address_guard`: requests allowed from some addresses only.
- `frame_budget`: memory and speed of incomplete frames. `unsent_budget`: memory of unsent answers.
- `limit_log`: counts each limit and logs it at most once a minute.

A limit closes or refuses the peer that uses the most, so one peer cannot lock out the others.
"""
