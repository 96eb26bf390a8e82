"""The server side: connections, thread pools, and dispatch of requests to processors and plugins.

- `server`: the listening port. `connection`: one accepted connection.
- `dispatch`: from frames to pools. `pools`, `fair_queue`: threads and queues.
- `command_jobs`, `request_decoder`: from the frames of a job to processors. `answers`: what the peers are told.
- `plugins`: loads processors, built-in and third-party ones. `third_party`: guards for the code of plugins.

The package docstring of `rocketd.remoting` describes threads, lanes and limits.
"""
