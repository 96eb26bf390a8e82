"""Answers an unknown option or field of a message with the right one: other clients have other names for them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from rocketd.common.suggest import did_you_mean

_ADDRESSES: Final = "use cluster=, the name servers"
_CONFIG: Final = "it is an option of ClientConfig, which is given as cluster="
_ACCOUNT: Final = "use ClientConfig(credentials=Credentials(access_key, secret_key)), given as cluster="
_TLS: Final = "use ClientConfig(tls=True), given as cluster="
_NAME: Final = "use ClientConfig(instance_name=), given as cluster="
_TAGS: Final = 'use topics={topic: "TagA || TagB"}'
_BEGIN: Final = 'use begin="earliest", begin="latest" or a datetime'
_CONCURRENCY: Final = "use concurrency="

OF_CLUSTERS: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "bootstrap_servers",
            "brokers",
            "endpoints",
            "name_server",
            "name_server_address",
            "name_servers",
            "nameserver",
            "nameservers",
            "namesrv",
            "namesrv_addr",
            "servers",
        ),
        _ADDRESSES,
    ),
    "access_key": _ACCOUNT,
    "secret_key": _ACCOUNT,
    "sasl_mechanism": _ACCOUNT,
    "credentials": _CONFIG,
    "instance_name": _CONFIG,
    "namespace": _CONFIG,
    "tls": _CONFIG,
    "client_id": _NAME,
    "security_protocol": _TLS,
    "ssl_context": _TLS,
}
"""Names in other clients for options of the cluster, with the answer."""

OF_PRODUCERS: Final[dict[str, str]] = {
    "group_id": "use group=",
    "producer_group": "use group=",
    "max_retries": "use retries= of a producer, or max_reconsume_times= of a consumer",
    "request_timeout_ms": "use send_timeout=, in seconds",
    "send_msg_timeout": "use send_timeout=, in seconds",
    "timeout": "use send_timeout= of a producer",
    "linger_ms": "use linger=, in seconds",
    "compression_type": "use compression=",
}
"""Names in other clients for options of producers, with the answer."""

KNOWN_ELSEWHERE: Final[Mapping[str, str]] = {
    **OF_CLUSTERS,
    **OF_PRODUCERS,
    "consumer_group": "use group=",
    "topic": "use topics=",
    "subscribe": "use topics=",
    "tags": _TAGS,
    "tag": _TAGS,
    "filter": _TAGS + ", or topics={topic: Sql(...)}",
    "start": _BEGIN,
    "start_from": _BEGIN,
    "auto_offset_reset": 'use begin="earliest" or begin="latest"',
    "consume_from_where": _BEGIN,
    "message_model": "use broadcast=True for Apache's BROADCASTING; the default is CLUSTERING",
    "callback": "use handler=",
    "listener": "use handler=",
    "message_listener": "use handler=",
    "on_message": "use handler=",
    **dict.fromkeys(
        ("consume_thread_nums", "max_workers", "thread_count", "thread_num", "thread_nums", "workers"), _CONCURRENCY
    ),
    "enable_auto_commit": "use auto_commit= of a LitePullConsumer",
    "max_poll_records": "use pull_batch=",
    "value_serializer": "use codec=",
    "value_deserializer": "use codec=",
    "orderly": 'use order="queue"',
    "on_assign": "use on_assigned=",
    "on_revoke": "use on_revoked=",
    "rebalance_listener": "use on_assigned=, on_revoked= and on_lost=",
}
"""Names of options in other clients, with the answer."""

OF_MESSAGES: Final[Mapping[str, str]] = {
    "tag": "use tags=",
    "key": 'use keys=["A17"] to find the message by it, or send(message, key=) to choose the queue by it',
    "headers": "use properties=",
    "value": "use body=",
    "payload": "use body=",
    "delay": "use deliver_after=, in seconds",
    "delay_seconds": "use deliver_after=, in seconds",
    "delay_time_level": "use delay_level=",
    "queue": "use send(message, queue=)",
    "partition": "use send(message, queue=)",
    "timeout": "use send(message, timeout=)",
}
"""Names of fields of messages in other clients, with the answer."""


def takes_fields(cls: type) -> bool:
    """Whether the ``__init__`` of a class is a dataclass's own, so that its keywords are the fields."""
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    return "__dataclass_fields__" in vars(owner)


def check_names(
    what: str,
    given: Iterable[str],
    known: Collection[str],
    elsewhere: Mapping[str, str] = KNOWN_ELSEWHERE,
    kind: str = "option",
) -> None:
    """Raise TypeError for the first unknown option of ``what``, with the right one if there is one.

    ``elsewhere`` has the names in other clients with the answers. ``kind`` is the word for an option.
    """
    for name in given:
        if name in known:
            continue
        answer = elsewhere.get(name)
        if answer is _ADDRESSES and "namesrv" in known:
            answer = "use namesrv="
        hint = f": {answer}" if answer is not None else did_you_mean(name, known)
        raise TypeError(f"{what} has no {kind} {name!r}{hint}")
