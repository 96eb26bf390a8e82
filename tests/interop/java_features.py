"""Real Java clients within one JVM, which answers commands line by line, and reports the messages of its consumers."""

import json
import subprocess
import time
from itertools import count
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from tests.support.apache import fetch_jars

SOURCE = Path(__file__).parent / "features" / "Features.java"
LIMIT = 90.0  # seconds for each wait


class CommandError(AssertionError):
    """A command of the program failed; the message is the exception of Java."""


class JavaFeatures:
    """A running JVM; ``stop`` ends it. ``arrivals`` are the messages that consumers got, each a dict with its consumer."""

    def __init__(self, namesrv: str, home: Path) -> None:
        """Start it; PeerUnavailableError if Java is missing or its jars cannot be fetched."""
        command = [
            *("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={home}"),
            # Java looks for its share of queues, and for topics, every 20 and 30 s: a restarted broker's too.
            *("-Drocketmq.client.rebalance.waitInterval=500", "-Drocketmq.client.logRoot=" + str(home)),
            *("-cp", f"{fetch_jars()}/*", str(SOURCE), namesrv),
        ]
        self._errors = (home / "java-features.err").open("wb")
        self._process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.arrivals: list[dict[str, Any]] = []
        self._numbers = count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._news = Condition()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue  # output of a library
            told = json.loads(line)
            with self._news:
                if "number" in told:
                    self._answers[told["number"]] = told
                else:
                    self.arrivals.append(told)
                self._news.notify_all()

    def begin(self, command: str, *words: object) -> int:
        """Give a command; returns its number, for ``end``."""
        number = next(self._numbers)
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, (number, command, *words))) + "\n")
        self._process.stdin.flush()
        return number

    def end(self, number: int) -> Any:
        """Wait for the end of a command and return its result. CommandError when it failed."""
        self.wait(f"command {number} ends", lambda: number in self._answers)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise CommandError(answer["error"])
        return answer["result"]

    def do(self, command: str, *words: object) -> Any:
        """Give a command and wait for its result."""
        return self.end(self.begin(command, *words))

    def persist(self, command: str, *words: object) -> Any:
        """Repeat a command until it succeeds: while a broker starts, or a client is not known to it yet."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                return self.do(command, *words)
            except CommandError:
                if time.monotonic() > deadline:
                    raise

    def of(self, consumer: str) -> list[dict[str, Any]]:
        """Return the messages of a consumer so far, in its order."""
        with self._news:
            return [told for told in self.arrivals if told["consumer"] == consumer and "body" in told]

    def bodies(self, consumer: str) -> list[str]:
        """Return the bodies of a consumer's messages so far."""
        return [told["body"] for told in self.of(consumer)]

    def wait(self, what: str, condition: Any) -> None:
        """Return once the condition, asked after every line of the program, holds. AssertionError after LIMIT."""
        deadline = time.monotonic() + LIMIT
        with self._news:
            while not condition():
                left = deadline - time.monotonic()
                assert self._process.poll() is None, "the JVM has ended"
                assert left > 0, f"waited {LIMIT:g} s in vain: {what}; the last arrivals: {self.arrivals[-5:]}"
                self._news.wait(min(left, 1.0))

    def wait_bodies(self, consumer: str, wanted: set[str]) -> None:
        """Return once a consumer has got all of these bodies."""
        self.wait(f"{consumer} gets {sorted(wanted)[:5]}...", lambda: wanted <= set(self.bodies(consumer)))

    def kill(self) -> None:
        """End the JVM by SIGKILL; ``stop`` is still to be called."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()
