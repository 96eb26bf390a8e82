"""Apache RocketMQ 4.x in Python on Twisted: name server, broker, storage engine and client."""

from rocketd import core

__version__ = "0.1.0"

core.choose()
