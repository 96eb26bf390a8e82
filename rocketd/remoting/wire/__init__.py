"""Frames and commands as bytes: framing, codes, and both forms of the header. Sans-io.

`frame` cuts frames, `command` is a request or response, `header_json` and `header_binary` are the two header forms,
`codes` and `versions` the numbers. Decoding is strict and fast first; a lenient reader follows for peers that write
numbers as text. The lenient reader is slow and must only run in pool threads.
"""
