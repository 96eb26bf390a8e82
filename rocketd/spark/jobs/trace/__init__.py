"""The job that measures latencies and failures from message traces.

`records` turns trace messages into rows, and `measures` computes latencies, failures and unconsumed messages from them.
`sketch` sums up percentiles. `follow` measures windows of a stream, and `job` is the command.
"""
