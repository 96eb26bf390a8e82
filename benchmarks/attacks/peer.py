"""Peers that attack, and an honest one whose waits are measured, over plain blocking sockets."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.wire import split_address

HEART_BEAT = 34
SEND_MESSAGE_V2 = 310
PULL_MESSAGE = 11
GET_ALL_TOPIC_CONFIG = 21
GET_MAX_OFFSET = 30
GET_BROKER_RUNTIME_INFO = 28
ONE_WAY = 2

_RESPONSE = 1
_numbers = itertools.count(1)


def request(code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", flag: int = 0) -> bytes:
    """Encode one request with the next number."""
    header = {
        "code": code,
        "extFields": dict(fields or {}),
        "flag": flag,
        "language": "JAVA",
        "opaque": next(_numbers),
        "serializeTypeCurrentRPC": "JSON",
        "version": 407,
    }
    head = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body


def send(topic: str, body: bytes = b"x", *, one_way: bool = False, **properties: str) -> bytes:
    """Encode one send to queue 0."""
    fields = {
        "a": "attacks", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
        "i": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()), "j": "0", "k": "false",
        "m": "false",
    }  # fmt: skip
    return request(SEND_MESSAGE_V2, fields, body, ONE_WAY if one_way else 0)


def pull(group: str, topic: str, limit: int, held_seconds: float = 0.0) -> bytes:
    """Encode a pull of up to ``limit`` messages from the beginning of queue 0, held so long if there are none."""
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": "0", "maxMsgNums": str(limit),
        "sysFlag": "6" if held_seconds else "4", "commitOffset": "0",
        "suspendTimeoutMillis": str(int(held_seconds * 1000)), "subscription": "*", "subVersion": "0",
    }  # fmt: skip
    return request(PULL_MESSAGE, fields)


def heartbeat(client: str, groups: Sequence[str]) -> bytes:
    """Encode the heartbeat of a client with a consumer in each of these groups."""
    consumers = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
        }
        for group in groups
    ]
    body = {"clientID": client, "consumerDataSet": consumers, "producerDataSet": []}
    return request(HEART_BEAT, {}, json.dumps(body).encode())


class Peer:
    """One connection; an answer that does not come within ``limit`` seconds raises TimeoutError."""

    def __init__(self, address: str, limit: float = 120.0) -> None:
        self.socket = socket.create_connection(split_address(address), limit)
        self._buffer = bytearray()

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def answer(self) -> int:
        """Return the code of the next answer; requests of the server are passed over. Raises OSError at the end."""
        while True:
            head = json.loads(self._frame())
            if head["flag"] & _RESPONSE:
                return int(head["code"])

    def ask(self, data: bytes) -> int:
        """Send one request and return the code of its answer."""
        self.write(data)
        return self.answer()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _frame(self) -> bytes:
        """The header of the next frame."""
        (length,) = struct.unpack(">I", self._take(4))
        frame = self._take(length)
        (size,) = struct.unpack_from(">I", frame)
        return frame[4 : 4 + (size & 0xFFFFFF)]

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


@dataclass
class Waits:
    """How long an honest client waited for each of its answers, in seconds, and how many were refusals."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0

    def percentile(self, share: float) -> float:
        """The wait in milliseconds that this share of all did not exceed."""
        return sorted(self.seconds)[min(int(len(self.seconds) * share), len(self.seconds) - 1)] * 1000

    def figures(self) -> dict[str, float]:
        """Median, 99th percentile and maximum in milliseconds, number of answers and of refusals."""
        return {
            "p50 ms": statistics.median(self.seconds) * 1000,
            "p99 ms": self.percentile(0.99),
            "max ms": max(self.seconds) * 1000,
            "answers": len(self.seconds),
            "refused": self.refused,
        }


@contextlib.contextmanager
def honest(address: str, data: bytes) -> Iterator[Waits]:
    """Have an honest client ask the same again and again, some 200 times a second."""
    waits = Waits()
    ending = threading.Event()

    def run() -> None:
        peer = Peer(address)
        with contextlib.closing(peer):
            while not ending.wait(0.005):
                began = time.monotonic()
                code = peer.ask(data)
                waits.seconds.append(time.monotonic() - began)
                waits.refused += code != 0

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield waits
    finally:
        ending.set()
        thread.join()


def ask_all(address: str, requests: Sequence[bytes], window: int) -> list[int]:
    """Send all requests on one connection, so many under way at a time; return the codes of their answers."""
    codes: list[int] = []
    peer = Peer(address)
    with contextlib.closing(peer):
        sent = 0
        while len(codes) < len(requests):
            while sent < len(requests) and sent - len(codes) < window:
                peer.write(requests[sent])
                sent += 1
            codes.append(peer.answer())
    return codes
