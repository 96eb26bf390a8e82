"""A broker of RocketMQ for FastStream: decorated handlers, publishers, routers, and a broker for tests.

No counterpart in Apache. It needs FastStream, which the extra ``rocketd[faststream]`` brings; docs/howto/faststream.md shows
its use.
"""

try:
    import faststream as _faststream  # noqa: F401 - only to say what to do where it is not there
except ModuleNotFoundError as error:
    if error.name != "faststream":
        raise
    raise ImportError("rocketd.faststream needs FastStream: pip install 'rocketd[faststream]'") from error

from rocketd.faststream.annotations import RocketBatchMessage, RocketMessage
from rocketd.faststream.broker import RocketBroker
from rocketd.faststream.response import RocketPublishCommand, RocketPublishMessage, RocketResponse
from rocketd.faststream.router import RocketPublisher, RocketRoute, RocketRouter
from rocketd.faststream.testing import TestRocketBroker

__all__ = (
    "RocketBatchMessage",
    "RocketBroker",
    "RocketMessage",
    "RocketPublishCommand",
    "RocketPublishMessage",
    "RocketPublisher",
    "RocketResponse",
    "RocketRoute",
    "RocketRouter",
    "TestRocketBroker",
)
