"""Makes frames that no honest client sends: mutations of recorded ones, and structured nonsense for every request code."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

from rocketd.remoting.wire.codes import RequestCode
from tests.fuzz.requests import RequestMaker

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "frames"
CODES = sorted({int(code) for code in RequestCode} | {0, -1, 3, 9999, 32767, 40000, 2**31 - 1})
FIELDS = """
    topic consumerGroup producerGroup group queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis
    subscription subVersion expressionType offset timestamp key maxNum beginTimestamp endTimestamp defaultTopic
    defaultTopicQueueNums readQueueNums writeQueueNums perm topicFilterType topicSysFlag order brokerName brokerAddr
    clusterName brokerId haServerAddr bodyCrc32 compressed namespace value clientID clientId bornTimestamp flag
    properties reconsumeTimes unitMode batch maxReconsumeTimes msgId originMsgId originTopic delayLevel
    tranStateTableOffset commitLogOffset commitOrRollback fromTransactionCheck isForce groupName statsName statsKey
    jstackEnable accessKey secretKey whiteRemoteAddress admin defaultTopicPerm topicPerms globalWhiteAddrs Signature
    AccessKey a b c d e f g h i j k l m
""".split()  # noqa: SIM905 - a list of literals would be a page long
VALUES = (
    "", "0", "1", "-1", "2147483647", "-2147483648", "9223372036854775807", "99999999999999999999", "1e309", "NaN",
    "true", "TRUE", "null", "../../../etc/passwd", "a/b", "..", "%RETRY%g", "%DLQ%g", "TBW102", "FuzzTopic", "fuzz-group",
    "*", "a||b", "\x00", "\x01\x02", "ä\U0001f600", "x" * 128, "x" * 5000, "TAGS\x01A\x02KEYS\x01k", "DELAY\x0118\x02", " ",
    "SQL92", "TAG",
)  # fmt: skip
SQL = (
    "a = 1", "a > 1 AND b IS NOT NULL", "(" * 200 + "a = 1" + ")" * 200, "a IN ('" + "','".join("xy" * 40) + "')",
    "NOT " * 300 + "a", "a BETWEEN 1 AND", "'" * 99, "a = 1 OR " * 400 + "b = 2", "1 = 1; DROP", "a LIKE '%'", "\x00",
    "TRUE", "a = 99999999999999999999", "a = -" + "9" * 400, "",
)  # fmt: skip


class FrameMaker:
    """Makes frames from a seed; the same seed makes the same frames."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.requests = RequestMaker(random, SQL, self._value, self.json)
        self._seeds = [
            bytes.fromhex(entry["hex"])
            for path in sorted(GOLDEN.glob("*.jsonl"))
            if path.name != "ha-port.jsonl"
            for entry in map(json.loads, path.read_text().splitlines())
            if "request" in entry["kind"]
        ]

    def frames(self, count: int) -> Iterator[bytes]:
        """Make so many frames, each with its length field.

        Half of the calls make only frames that a server answers: a bad header ends the connection, and later frames and
        awaited answers are lost with it.
        """
        makers = [self.requests.frame, self.requests.frame, self.requests.frame, self._recorded]
        broken = 0.0
        if self._random.random() < 0.5:
            makers += [self._structured, self._flipped]
            broken = 0.002
        for _ in range(count):
            yield self._broken() if self._random.random() < broken else self._random.choice(makers)()

    def reports(self, end: int) -> bytes:
        """Make some bytes of a slave: mostly reports of 8 bytes. ``end`` is the end of the log it knows."""
        random = self._random
        offsets = (0, end, end, end, random.randrange(end + 1), end + 1, -1, random.randrange(-1 << 63, 1 << 63))
        if random.random() < 0.1:
            return random.randbytes(random.randrange(1, 4000))
        made = struct.pack(">q", random.choice(offsets if random.random() < 0.5 else offsets[:5]))
        return made if random.random() < 0.9 else made + random.randbytes(random.randrange(1, 8))

    def tls_noise(self) -> bytes:
        """Make bytes that begin like a TLS handshake: a record of it, with a right or a wrong length."""
        noise = self._random.randbytes(self._random.randrange(1, 600))
        length = len(noise) if self._random.random() < 0.5 else self._random.randrange(1 << 16)
        return struct.pack(">BHH", 0x16, 0x0301, length) + noise

    def transfers(self) -> bytes:
        """Make bytes of a master for its slave: frames of the log, some of them broken."""
        random = self._random
        data = b""
        for _ in range(random.randrange(1, 20)):
            body = random.randbytes(random.choice((0, 0, 1, 91, random.randrange(5000))))
            offset, size = random.randrange(1 << 40), len(body)
            if random.random() < 0.05:
                offset, size = random.choice(((-1, size), (offset, -1), (offset, 2**31 - 1), (offset, size + 1)))
            data += struct.pack(">qi", offset, size) + body
        return data

    def _structured(self) -> bytes:
        random = self._random
        code = random.choice(CODES)
        fields = {random.choice(FIELDS): self._value() for _ in range(random.randrange(12))}
        if random.random() < 0.5:
            fields |= {"topic": "FuzzTopic", "b": "FuzzTopic", "a": "fuzz", "consumerGroup": "fuzz-group"}
        flag = random.choice((0, 0, 0, 2, 2, 1, 3, -1, 2**31 - 1))
        body = self._body() if random.random() < 0.6 else b""
        if random.random() < 0.5:
            return frame(self._json_header(code, flag, fields), body)
        return frame(self._binary_header(code, flag, fields), body, 1)

    def _json_header(self, code: int, flag: int, fields: dict[str, str]) -> bytes:
        random = self._random
        header: dict[str, object] = {
            "code": code,
            "flag": flag,
            "language": random.choice(("JAVA", "GO", "PYTHON", "NONE", 5, None)),
            "opaque": random.choice((0, random.randrange(1 << 30), -5, 2**40)),
            "version": random.choice((407, 0, -1, 99999)),
        }
        if random.random() < 0.9:
            header["extFields"] = fields if random.random() < 0.95 else random.choice((None, [], "x", {"topic": 5}))
        if random.random() < 0.1:
            header[random.choice(("remark", "serializeTypeCurrentRPC", "other"))] = self._value()
        text = json.dumps(header, ensure_ascii=random.random() < 0.5, separators=(",", ":")).encode("utf-8", "replace")
        if random.random() < 0.05:
            text = b" " + text
        return text

    def _binary_header(self, code: int, flag: int, fields: dict[str, str]) -> bytes:
        random = self._random
        packed = b""
        for name, value in fields.items():
            key, data = name.encode(), value.encode("utf-8", "replace")
            length = len(data) if random.random() < 0.98 else random.randrange(1 << 31)
            packed += struct.pack(">H", len(key)) + key + struct.pack(">i", min(length, 2**31 - 1)) + data
        if random.random() < 0.02:
            packed = packed[: random.randrange(len(packed) + 1)]
        fixed = struct.pack(
            ">hBhii", code % 65536 - 32768 if code > 32767 else code, 0, 407, random.randrange(1 << 30), flag
        )
        return fixed + struct.pack(">i", 0) + struct.pack(">i", len(packed)) + packed

    def _value(self) -> str:
        random = self._random
        if random.random() < 0.1:
            return random.choice(SQL)
        return random.choice(VALUES) if random.random() < 0.9 else str(random.randrange(-5, 1 << 40))

    def _body(self) -> bytes:
        random = self._random
        kind = random.randrange(6)
        if kind == 0:
            return random.randbytes(random.randrange(200))
        if kind == 1:
            return self._batch()
        if kind == 2:
            return b"[" * random.randrange(2000) + b"]" * random.randrange(2000)
        if kind == 3:
            return f"{random.choice(FIELDS)}={self._value()}\n".encode("utf-8", "replace")
        return json.dumps(self.json(3)).encode()

    def _batch(self) -> bytes:
        random = self._random
        parts = []
        for _ in range(random.randrange(1, 6)):
            body, properties = random.randbytes(random.randrange(30)), b"TAGS\x01A\x02"
            size = 22 + len(body) + len(properties)
            if random.random() < 0.2:
                size = random.choice((0, -1, 2**31 - 1, size - 3, size + 3))
            parts.append(
                struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties
            )
        return b"".join(parts)

    def json(self, depth: int) -> object:
        random = self._random
        kind = random.randrange(4 if depth else 2)
        if kind < 2:
            return random.choice((None, True, 0, -1, 2**63, 1.5, *VALUES[:20], *SQL[:4]))
        if kind == 2:
            return [self.json(depth - 1) for _ in range(random.randrange(4))]
        names = (
            "clientID", "consumerDataSet", "producerDataSet", "subscriptionDataSet", "groupName", "topic", "subString",
            "tagsSet", "codeSet", "mqSet", "consumerGroup", "brokerName", "queueId", "topicConfigSerializeWrapper",
            "topicConfigTable", "dataVersion", "filterServerList", "offsetTable", "subscriptionGroupTable", "messageModel",
        )  # fmt: skip
        return {random.choice(names): self.json(depth - 1) for _ in range(random.randrange(6))}

    def _recorded(self) -> bytes:
        return self._random.choice(self._seeds)

    def _flipped(self) -> bytes:
        """A recorded frame with some bits flipped behind its lengths."""
        data = bytearray(self._random.choice(self._seeds))
        for _ in range(self._random.randrange(1, 4)):
            position = self._random.randrange(8, len(data)) if len(data) > 8 else 7
            data[position] ^= 1 << self._random.randrange(8)
        return bytes(data)

    def _broken(self) -> bytes:
        """Bytes that end their connection: wrong lengths, or no frame at all."""
        data = bytearray(self._random.choice(self._seeds))
        data[self._random.randrange(8)] ^= 1 << self._random.randrange(8)
        return bytes(data) if self._random.random() < 0.5 else self._random.randbytes(self._random.randrange(1, 64))


def frame(header: bytes, body: bytes, serialize_type: int = 0) -> bytes:
    """Put the lengths in front of a header and a body."""
    return struct.pack(">ii", 4 + len(header) + len(body), serialize_type << 24 | len(header)) + header + body
