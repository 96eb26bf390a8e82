"""A Kombu transport, so that Celery and other programs on Kombu run on RocketMQ.

It needs Kombu, which the extra ``rocketd[celery]`` installs. Importing this package registers the scheme ``rocketmq://``
of broker URLs. docs/howto/celery.md shows how to use it.

`transport` holds the clients of a connection. `channel` translates Kombu's queues: each is a topic (`names`), and all
workers of a queue are one consumer group. `group_reader` polls a topic and commits the offsets of acknowledged messages,
by the account of `offset_track`. `delays` finds the times of delayed tasks.

Two invariants keep every task: an offset is committed only if all messages before it were acknowledged, or stored again.
A message is stored again before its first copy counts as acknowledged.
"""

try:
    import kombu as _kombu  # noqa: F401 - only to say what to do where it is not there
except ModuleNotFoundError as error:
    if error.name != "kombu":
        raise
    raise ImportError("rocketd.kombu needs Kombu: pip install 'rocketd[celery]'") from error

from kombu.transport import TRANSPORT_ALIASES

from rocketd.kombu.transport import RocketMQTransport

__all__ = ("RocketMQTransport",)

TRANSPORT_ALIASES.setdefault("rocketmq", "rocketd.kombu.transport:RocketMQTransport")
