"""What handlers write for what they want to be given, beside the body.

No counterpart in Apache.
"""

from typing import Annotated

from faststream import Context
from faststream.annotations import ContextRepo, Logger
from faststream.params import NoCast

from rocketd.faststream import broker, message, producer

__all__ = (
    "ContextRepo",
    "Logger",
    "NoCast",
    "RocketBatchMessage",
    "RocketBroker",
    "RocketMessage",
    "RocketProducer",
)

RocketMessage = Annotated[message.RocketMessage, Context("message")]
"""The message that is handled."""
RocketBatchMessage = Annotated[message.RocketBatchMessage, Context("message")]
"""The messages that are handled together."""
RocketBroker = Annotated[broker.RocketBroker, Context("broker")]
"""The broker."""
RocketProducer = Annotated[producer.RocketProducer, Context("broker._producer")]
"""What the broker sends by."""
