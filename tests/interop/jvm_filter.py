"""Apache's own filter classes, asked through one JVM that answers a line to a line."""

import base64
import subprocess
from pathlib import Path

from tests.support.apache import fetch_jars

SOURCE = Path(__file__).parent / "sql_filter" / "Evaluator.java"


class JvmFilter:
    """A running JVM; ``stop`` ends it."""

    def __init__(self) -> None:
        """Start it; PeerUnavailableError when Java is missing or its jars cannot be fetched."""
        self._process = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", f"{fetch_jars()}/*", str(SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def evaluate(self, expression: str, properties: str) -> str:
        """Evaluate an expression for a property string: true, false, null, error (thrown), or refused by the parser."""
        return self._ask("sql", _word(expression), _word(properties))

    def bloom(self, error_rate: int, expected: int, key: str) -> tuple[int, int, list[int]]:
        """Hash functions, bits and the positions of a key in a bloom filter of that error rate (%) and size."""
        hashes, bits, positions = self._ask("bloom", str(error_rate), str(expected), _word(key)).split(" ")
        return int(hashes), int(bits), [int(position) for position in positions.strip("[]").split(",")]

    def empty(self) -> None:
        """Forget all groups' filters."""
        self._ask("manager")

    def register(self, group: str, subscriptions: list[tuple[str, str, int, str]]) -> None:
        """Take in a group's subscriptions: topic, type, version, expression."""
        words = [
            word
            for topic, kind, version, expression in subscriptions
            for word in (_word(topic), _word(kind), str(version), _word(expression))
        ]
        self._ask("register", _word(group), *words)

    def unregister(self, group: str) -> None:
        """Note that a group has no members any more."""
        self._ask("unregister", _word(group))

    def state(self, topic: str, group: str) -> str:
        """A group's filter of a topic: version, whether the group is gone, expression; or "none"."""
        return self._ask("state", _word(topic), _word(group))

    def _ask(self, *words: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(" ".join(words) + "\n")
        stdin.flush()
        answer = stdout.readline()
        assert answer, f"the JVM has ended with {self._process.wait()}"
        return answer.rstrip("\n")

    def stop(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _word(text: str) -> str:
    return base64.b64encode(text.encode()).decode() or "-"
