"""Feeds nonsense to everything that reads bytes and texts of others: only documented errors may come out."""

import json
import time
import traceback
from collections.abc import Callable, Iterable
from random import Random

from rocketd.acl import plain_file
from rocketd.acl.errors import AclError
from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.settings import properties_file
from rocketd.common.settings.declaration import ConfigError
from rocketd.filter.expressions import SelectorError
from rocketd.filter.selector import Selector
from rocketd.namesrv.settings import NamesrvSettings
from rocketd.remoting.bodies import admin as admin_bodies
from rocketd.remoting.bodies import groups as group_bodies
from rocketd.remoting.bodies import lag as lag_bodies
from rocketd.remoting.bodies import tables as bodies
from rocketd.remoting.errors import FrameError, RemotingCommandError
from rocketd.remoting.fastjson import dialect as fastjson
from rocketd.remoting.wire.command import RemotingCommand
from rocketd.remoting.wire.frame import FrameDecoder
from rocketd.store.log.transfer import TransferDecoder, TransferError
from tests.fuzz.frames import SQL, FrameMaker

STEP_SECONDS = 10.0
"""One input that takes longer is a finding."""
ACCOUNTS = b"""globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: '12345678'
  admin: false
  topicPerms:
  - topicA=DENY
"""
PROPERTIES = "# a comment\nbrokerName=broker-a\nlistenPort : 10911\nlong = a \\\n  b\nescaped=\\u0041\\n\n"
WORDS = (
    "a",
    "b",
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "NULL",
    "BETWEEN",
    "(",
    ")",
    ",",
    "'x'",
    "1",
    "-1.5e9",
    "=",
    "<>",
    ">=",
    "TRUE",
)
BODIES = tuple(
    kind
    for module in (bodies, admin_bodies, group_bodies, lag_bodies)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, bodies.Body | bodies.FrozenBody)
    if kind not in (bodies.Body, bodies.FrozenBody)
)
SETTING_VALUES = (
    "", "0", "1", "-1", "2147483648", "99999999999999999999", "1.5", "true", "TRUE", "null", "any", "none",
    "private,brokers", "10.0.0.0/99", "::1", "/", "../x", "\x00", "ä", "SLAVE", "SYNC_FLUSH", "1s 2s 3x", "a;b", "x" * 5000,
    "${user.home}", "04",
)  # fmt: skip


class ParserFuzzer:
    """Makes inputs from a seed and counts them."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._maker = FrameMaker(self._random)
        self._servers = [(kind, kind.load()[0]) for kind in (BrokerSettings, NamesrvSettings)]
        self._keys = {
            kind: [entry.key for entry in properties_file.parse(settings.properties_text())]
            for kind, settings in self._servers
        }
        self.inputs = 0

    def run(self, seconds: float) -> None:
        """Go on for so long. Raises AssertionError, with the input, for any other error than a documented one."""
        steps: tuple[Callable[[], object], ...] = (
            self._frames,
            self._transfers,
            self._json,
            self._sql,
            self._properties,
            self._settings,
            self._accounts,
        )
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for step in steps:
                step()

    def _expect(self, what: str, given: object, run: Callable[[], object], *errors: type[Exception]) -> None:
        self.inputs += 1
        began = time.monotonic()
        try:
            run()
        except errors:
            pass
        except Exception:
            raise AssertionError(f"{what} {given!r:.2000}\n{traceback.format_exc()}") from None
        took = time.monotonic() - began
        if took > STEP_SECONDS:
            raise AssertionError(f"{what} took {took:.1f} s: {given!r:.2000}")

    def _frames(self) -> None:
        data = b"".join(self._maker.frames(50))
        decoder = FrameDecoder()

        def decode() -> None:
            position = 0
            while position < len(data):
                step = self._random.randrange(1, 4000)
                for found in decoder.feed(data[position : position + step]):
                    try:
                        RemotingCommand.decode(found)
                    except (FrameError, RemotingCommandError):
                        self.inputs += 1
                position += step

        self._expect("frames", data, decode, FrameError, RemotingCommandError)

    def _transfers(self) -> None:
        """Frames of a master, as its slave reads them: in pieces they are the same as at once."""
        data = self._maker.transfers()
        pieces = []
        position = 0
        while position < len(data):
            step = self._random.choice((1, 11, 12, 13, self._random.randrange(1, 4000)))
            pieces.append(data[position : position + step])
            position += step

        def read(parts: Iterable[bytes]) -> list[object]:
            decoder = TransferDecoder()
            found: list[object] = []
            try:
                for part in parts:
                    found += decoder.feed(part)
            except TransferError:
                found.append(TransferError)
            return found

        def compare() -> None:
            at_once, in_pieces = read([data]), read(pieces)
            # At once, a broken header hides the frames before it.
            if in_pieces != at_once and (at_once, in_pieces[-1:]) != ([TransferError], [TransferError]):
                raise ValueError(f"{in_pieces} in pieces, {at_once} at once")

        self._expect("transfers", data, compare)

    def _json(self) -> None:
        random = self._random
        for _ in range(20):
            text = json.dumps(self._maker.json(4), ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
            if random.random() < 0.5:
                text = self._mutated(text)
            body = random.choice(BODIES)
            self._expect(
                body.__name__, text, lambda text=text, body=body: fastjson.decode(text, body), fastjson.FastJSONError
            )

    def _sql(self) -> None:
        random = self._random
        for _ in range(5):
            if random.random() < 0.3:
                text = random.choice(SQL)
            else:
                text = " ".join(random.choice(WORDS) for _ in range(random.randrange(1, 12)))

            def evaluate(text: str = text) -> None:
                Selector(text).evaluate({"a": "1", "b": "x"})

            self._expect("SQL92", text, evaluate, SelectorError, ValueError)

    def _properties(self) -> None:
        data = self._mutated(PROPERTIES.encode())
        self._expect("properties", data, lambda: properties_file.parse(properties_file.decode(data)), ValueError)

    def _settings(self) -> None:
        """Values of settings, at a start and in a running server."""
        random = self._random
        kind, running = random.choice(self._servers)
        given = [
            (random.choice(self._keys[kind]), random.choice(SETTING_VALUES)) for _ in range(random.randrange(1, 4))
        ]
        self._expect(f"{kind.__name__} at the start", given, lambda: kind.load(None, given), ConfigError)
        text = "".join(f"{key}={value}\n" for key, value in given)
        self._expect(f"{kind.__name__} while running", text, lambda: running.update(text), ValueError)

    def _accounts(self) -> None:
        data = self._mutated(ACCOUNTS)
        self._expect("accounts", data, lambda: plain_file.parse(data, "plain_acl.yml"), AclError)

    def _mutated(self, data: bytes) -> bytes:
        """Bytes with some changed, cut out or put in."""
        random = self._random
        changed = bytearray(data)
        for _ in range(random.randrange(1, 6)):
            position = random.randrange(len(changed)) if changed else 0
            kind = random.randrange(3)
            if kind == 0 and changed:
                changed[position] = random.randrange(256)
            elif kind == 1:
                del changed[position : position + random.randrange(1, 9)]
            else:
                changed[position:position] = random.choice(
                    (b"\x00", b":", b"- ", b"{", b"\\", b"\n\n", random.randbytes(4))
                )
        return bytes(changed)
