"""The job that copies messages with fields hashed or left out.

`fields` applies the rules to Arrow batches, and `job` is the command.
"""
