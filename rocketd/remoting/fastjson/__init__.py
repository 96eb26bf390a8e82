"""Apache's JSON dialect, read and written: number keys without quotes, and objects as keys.

`dialect` is the interface, `reader` parses, `convert` fits values to declared types, `writer` writes. See
docs/decisions/0007.
"""
