"""The server side: connections, thread pools, and dispatch of requests to processors and plugins.

- `server`: the listening port. `connection`: one accepted connection. `connection_events`: listeners of third parties.
- `dispatch`: from frames to processors. `pools`, `turns`: threads and queues.
- `plugins`, `plugin_processor`, `plugin_hook`, `plugin_calls`: third-party code, guarded.

The package docstring of `rocketd.remoting` describes threads, lanes and limits.
"""
