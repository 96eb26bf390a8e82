"""Options of reads and writes: declared once, checked as they are read."""

from rocketd.spark.options.connect import ConnectOptions
from rocketd.spark.options.declare import Option
from rocketd.spark.options.read import READ_OPTIONS, ReadOptions

__all__ = ["READ_OPTIONS", "ConnectOptions", "Option", "ReadOptions"]
