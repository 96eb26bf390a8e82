"""The server side: connections, thread pools, and dispatch of requests to processors and plugins.

- `server`: the listening port. `connection`: one accepted connection. `connection_events`: listeners of third parties.
- `dispatch`: from frames to pools. `pools`, `turns`: threads and queues.
- `command_jobs`, `request_decoder`: from the frames of a job to processors. `answers`: what the peers are told.
- `plugins`, `plugin_processor`, `plugin_hook`, `plugin_calls`: third-party code, guarded.

The package docstring of `rocketd.remoting` describes threads, lanes and limits.
"""
