"""SQL92 filters: expressions over message properties, and the bitmaps of matching groups.

A filter text goes through `grammar` and `parser` to an expression tree (`expressions`), and through `evaluate` to a
function. `selector` caches the result. `java_numbers` parses and compares numbers like Java. `bloom` has the bitmaps
stored in extended consume queues. The semantics are Apache's, including its oddities; see docs/decisions/0013.
"""
