"""The client for Twisted: methods return Deferreds, which coroutines can await.

The reactor is the global one. It is imported when the first client starts. Each name is imported when it is first used.
Decision: docs/decisions/0017.
"""

from typing import TYPE_CHECKING

from rocketd.client.runtime import gevent_patches  # noqa: F401 - it notes whether gevent has patched before
from rocketd.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from rocketd.acl.credentials import Credentials
    from rocketd.client import aio as aio
    from rocketd.client import codecs as codecs
    from rocketd.client import errors as errors
    from rocketd.client import hooks as hooks
    from rocketd.client import logging_handler as logging_handler
    from rocketd.client import once as once
    from rocketd.client import openmessaging as openmessaging
    from rocketd.client import sync as sync
    from rocketd.client.consumer.options.flow_limits import FlowLimits
    from rocketd.client.consumer.options.kind_options import Order
    from rocketd.client.consumer.options.subscription import Sql
    from rocketd.client.consumer.pull_consumer import PullResult, PullStatus
    from rocketd.client.consumer.retries.dead_letter_reader import DeadLetter
    from rocketd.client.consumer.retries.handler_results import Reject, Retry
    from rocketd.client.consumer.retries.redrive import RedriveResult, RedriveTarget
    from rocketd.client.deferred import Consumer, LitePullConsumer, Producer, PullConsumer, run
    from rocketd.client.errors import RocketMQError
    from rocketd.client.faces.twisted_admin import Admin
    from rocketd.client.hooks import (
        ConsumeMessageContext,
        ConsumerHook,
        EndTransactionContext,
        FilterMessageContext,
        ProducerHook,
        SendMessageContext,
    )
    from rocketd.client.messages.codec import BYTES, TEXT, Codec, JsonCodec
    from rocketd.client.messages.message import Message, ReceivedMessage, SendResult, SendStatus
    from rocketd.client.producer.selectors import (
        SelectMessageQueueByHash,
        SelectMessageQueueByRandom,
    )
    from rocketd.client.producer.transaction import TransactionListener, TransactionSendResult, TransactionState
    from rocketd.client.queries.accounts import BrokerAccount
    from rocketd.client.queries.inspection import GroupClient, QueueEnds, QueueProgress, ServerAnswer
    from rocketd.client.settings.config import ClientConfig, RequestHook
    from rocketd.client.stats import ConsumerStats, ProducerStats
    from rocketd.client.trace.records import ConsumeReturnType, MessageType
    from rocketd.remoting.bodies.tables import MessageQueue
    from rocketd.remoting.interfaces import IRPCHook
    from rocketd.remoting.settings import NettyClientConfig, TlsConfig
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "rocketd.acl.credentials": ("Credentials",),
            "rocketd.client": (
                "aio",
                "codecs",
                "errors",
                "hooks",
                "logging_handler",
                "once",
                "openmessaging",
                "sync",
            ),
            "rocketd.client.consumer.retries.dead_letter_reader": ("DeadLetter",),
            "rocketd.client.consumer.options.flow_limits": ("FlowLimits",),
            "rocketd.client.consumer.retries.handler_results": ("Reject", "Retry"),
            "rocketd.client.consumer.options.kind_options": ("Order",),
            "rocketd.client.consumer.pull_consumer": ("PullResult", "PullStatus"),
            "rocketd.client.consumer.retries.redrive": ("RedriveResult", "RedriveTarget"),
            "rocketd.client.consumer.options.subscription": ("Sql",),
            "rocketd.client.deferred": ("Consumer", "LitePullConsumer", "Producer", "PullConsumer", "run"),
            "rocketd.client.errors": ("RocketMQError",),
            "rocketd.client.faces.twisted_admin": ("Admin",),
            "rocketd.client.hooks": (
                "ConsumeMessageContext",
                "ConsumerHook",
                "EndTransactionContext",
                "FilterMessageContext",
                "ProducerHook",
                "SendMessageContext",
            ),
            "rocketd.client.messages.codec": ("BYTES", "Codec", "JsonCodec", "TEXT"),
            "rocketd.client.messages.message": ("Message", "ReceivedMessage", "SendResult", "SendStatus"),
            "rocketd.client.producer.selectors": (
                "SelectMessageQueueByHash",
                "SelectMessageQueueByRandom",
            ),
            "rocketd.client.producer.transaction": ("TransactionListener", "TransactionSendResult", "TransactionState"),
            "rocketd.client.queries.accounts": ("BrokerAccount",),
            "rocketd.client.queries.inspection": ("GroupClient", "QueueEnds", "QueueProgress", "ServerAnswer"),
            "rocketd.client.settings.config": ("ClientConfig", "RequestHook"),
            "rocketd.client.stats": ("ConsumerStats", "ProducerStats"),
            "rocketd.client.trace.records": ("ConsumeReturnType", "MessageType"),
            "rocketd.remoting.bodies.tables": ("MessageQueue",),
            "rocketd.remoting.interfaces": ("IRPCHook",),
            "rocketd.remoting.settings": ("NettyClientConfig", "TlsConfig"),
        },
    )

__all__ = [
    "BYTES",
    "TEXT",
    "Admin",
    "BrokerAccount",
    "ClientConfig",
    "Codec",
    "ConsumeMessageContext",
    "ConsumeReturnType",
    "Consumer",
    "ConsumerHook",
    "ConsumerStats",
    "Credentials",
    "DeadLetter",
    "EndTransactionContext",
    "FilterMessageContext",
    "FlowLimits",
    "GroupClient",
    "IRPCHook",
    "JsonCodec",
    "LitePullConsumer",
    "Message",
    "MessageQueue",
    "MessageType",
    "NettyClientConfig",
    "Order",
    "Producer",
    "ProducerHook",
    "ProducerStats",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "QueueEnds",
    "QueueProgress",
    "ReceivedMessage",
    "RedriveResult",
    "RedriveTarget",
    "Reject",
    "RequestHook",
    "Retry",
    "RocketMQError",
    "SelectMessageQueueByHash",
    "SelectMessageQueueByRandom",
    "SendMessageContext",
    "SendResult",
    "SendStatus",
    "ServerAnswer",
    "Sql",
    "TlsConfig",
    "TransactionListener",
    "TransactionSendResult",
    "TransactionState",
    "run",
]
