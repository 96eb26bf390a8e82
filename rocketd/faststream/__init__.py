"""A RocketMQ broker for FastStream: decorated handlers, publishers, routers, and a broker for tests.

It needs FastStream, which the extra ``rocketd[faststream]`` installs. docs/howto/faststream.md shows how to use it.

`broker` and `router` are the entry points; `registrator` creates a `subscriber` or a `publisher` for each decorator.
`base.groups` keeps one consumer of the client per consumer group, and `base.settlement` carries the outcome of a delivery
from the handler back to that consumer. `testing` runs all of it on a cluster in the process of the test.
"""

try:
    import faststream as _faststream  # noqa: F401 - only to say what to do where it is not there
except ModuleNotFoundError as error:
    if error.name != "faststream":
        raise
    raise ImportError("rocketd.faststream needs FastStream: pip install 'rocketd[faststream]'") from error

from rocketd.faststream.annotations import RocketBatchMessage, RocketMessage
from rocketd.faststream.base.response import RocketPublishCommand, RocketPublishMessage, RocketResponse
from rocketd.faststream.broker import RocketBroker
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
