"""Options of reads and writes: declared once, and checked when they are read.

`declare` turns a dataclass field into an option, with its camelCase name. `kinds` are the value types, and `positions`
the starts and ends of reads. `connect` holds the connection options shared by reads and writes, and `read` the options
of reads. The options of writes are in `rocketd.spark.sink.options`. `texts` converts Python values to option texts. The
tables of docs/spark.md are generated from these declarations.
"""

from rocketd.spark.options.connect import ConnectOptions
from rocketd.spark.options.declare import Option
from rocketd.spark.options.read import READ_OPTIONS, ReadOptions

__all__ = ["READ_OPTIONS", "ConnectOptions", "Option", "ReadOptions"]
