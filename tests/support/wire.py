"""The few remoting calls that starting a peer needs, over a plain blocking socket.

It imports nothing of rocketd on purpose: code that waits for a server, or prepares one, must not share its codec with it.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass

UPDATE_AND_CREATE_TOPIC = 17
GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106

SUCCESS = 0
TOPIC_NOT_EXIST = 17

_VERSION = 407  # as a 4.9.7 client sends it: bodies come as strict JSON
_READ_WRITE = 6


@dataclass(frozen=True)
class Answer:
    """One response: its code, its remark (None when it has none), its extension fields and its body."""

    code: int
    remark: str | None
    ext_fields: dict[str, str]
    body: bytes


class WireError(OSError):
    """The peer closed the connection, or its bytes are not an answer."""


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port`` for a socket; ValueError if the text has another form."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def call(
    address: str, code: int, ext_fields: Mapping[str, str] | None = None, body: bytes = b"", timeout: float = 30.0
) -> Answer:
    """Send one request on a new connection and return the answer; OSError if none comes in ``timeout`` s."""
    header = {
        "code": code,
        "extFields": dict(ext_fields or {}),
        "flag": 0,
        "language": "OTHER",
        "opaque": 1,
        "serializeTypeCurrentRPC": "JSON",
        "version": _VERSION,
    }
    head = json.dumps(header).encode()
    with socket.create_connection(split_address(address), timeout) as connection:
        connection.sendall(struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body)
        (length,) = struct.unpack(">I", _exactly(connection, 4))
        frame = _exactly(connection, length)
    (size,) = struct.unpack_from(">I", frame)
    if size > length - 4:
        raise WireError(f"header word {size:#x} in a frame of {length} bytes")
    answer = json.loads(frame[4 : 4 + size])
    return Answer(answer["code"], answer.get("remark"), answer.get("extFields") or {}, frame[4 + size :])


def create_topic(broker: str, topic: str, queues: int = 4) -> None:
    """Create (or change) a readable and writable topic at one broker; WireError when it refuses."""
    answer = call(
        broker,
        UPDATE_AND_CREATE_TOPIC,
        {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(_READ_WRITE),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        },
    )
    if answer.code != SUCCESS:
        raise WireError(f"{broker} did not create {topic}: {answer.code} {answer.remark}")


def has_broker(namesrv: str, broker: str) -> bool:
    """Whether the name server lists that broker's address; False too while the name server does not answer."""
    try:
        answer = call(namesrv, GET_BROKER_CLUSTER_INFO)
    except OSError:
        return False
    return answer.code == SUCCESS and f'"{broker}"'.encode() in answer.body


def has_route(namesrv: str, topic: str, broker: str) -> bool:
    """Whether the name server's route of the topic leads to that broker; False too while it does not answer.

    Brackets around an IPv6 address make no difference.
    """
    try:
        answer = call(namesrv, GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    except OSError:
        return False
    quoted = f'"{broker}"'.encode().translate(None, b"[]")
    return answer.code == SUCCESS and quoted in answer.body.translate(None, b"[]")


def await_route(namesrv: str, topic: str, broker: str, limit: float = 60.0) -> None:
    """Return once the topic's route leads to that broker; WireError when it does not within ``limit`` seconds."""
    deadline = time.monotonic() + limit
    while not has_route(namesrv, topic, broker):
        if time.monotonic() > deadline:
            raise WireError(f"{namesrv} has no route of {topic} to {broker} after {limit:g} s")
        time.sleep(0.02)


def accepts(address: str) -> bool:
    """Whether a TCP connection to the address can be made."""
    try:
        socket.create_connection(split_address(address), 1.0).close()
    except OSError:
        return False
    return True


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise WireError("the connection was closed before the answer")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
