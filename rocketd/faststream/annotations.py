"""Annotations for handler parameters that FastStream injects beside the body."""

from typing import Annotated

from faststream import Context
from faststream.annotations import ContextRepo, Logger
from faststream.params import NoCast

from rocketd.faststream import broker
from rocketd.faststream.base import message, producer

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
"""The message being handled."""
RocketBatchMessage = Annotated[message.RocketBatchMessage, Context("message")]
"""The batch of messages being handled."""
RocketBroker = Annotated[broker.RocketBroker, Context("broker")]
"""The broker."""
RocketProducer = Annotated[producer.RocketProducer, Context("broker._producer")]
"""The producer of the broker."""
