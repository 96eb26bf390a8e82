"""Apache's own client classes that share and choose queues, asked through one JVM that answers a line to a line."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocketd.remoting.bodies.tables import MessageQueue
from tests.support.apache import fetch_jars

SOURCE = Path(__file__).parent / "client_rules" / "Rules.java"


class JvmClientRules:
    """A running JVM; ``stop`` ends it."""

    def __init__(self, home: Path) -> None:
        """Start it, with its logs in ``home``; PeerUnavailableError when Java is missing or its jars cannot be fetched."""
        # Consistent hashing takes the bytes of names in the default charset, which depends on the machine.
        options = ["-Xmx256m", "-Dfile.encoding=UTF-8", f"-Duser.home={home}"]
        self._process = subprocess.Popen(
            ["java", *options, "-cp", f"{fetch_jars()}/*", str(SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def allocate(
        self,
        strategy: dict[str, Any],
        client: str,
        queues: Sequence[MessageQueue],
        clients: Sequence[str],
        is_sorted: bool,
    ) -> tuple[str, list[MessageQueue] | None]:
        """The name of a strategy and a client's share; None when the strategy throws. First sorts the lists if so wished.

        ``strategy`` has the "name", and beside it "queues" (CONFIG), "rooms" (MACHINE_ROOM), "virtual_nodes"
        and "ring" (CONSISTENT_HASH: so many places, on which names are put by their hash codes, in place of MD5; 0 for
        MD5), or, for MACHINE_ROOM_NEARBY, "inner", and "brokers" and "clients", which have rooms by name.
        """
        name, share = self._ask(
            {
                "do": "allocate",
                "strategy": strategy,
                "client": client,
                "queues": arrays(queues),
                "clients": clients,
                "sorted": is_sorted,
            }
        )
        return name, share if share is None else [MessageQueue(*queue) for queue in share]

    def hash(self, key: str | int | bool, count: int) -> int:
        """Which of so many queues a key goes to."""
        chosen: int = self._ask({"do": "hash", "key": key, "count": count})
        return chosen

    def choose(self, producer: dict[str, Any], steps: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the results of the steps of a producer, each with the times (ms) before and after; see Rules.java."""
        given: list[list[Any]] = self._ask({"do": "choose", "steps": steps, **producer})
        return given

    def defaults(self, name: str) -> dict[str, Any]:
        """Return the defaults of a client class, by its name below org.apache.rocketmq.client."""
        values: dict[str, Any] = self._ask({"do": "defaults", "class": f"org.apache.rocketmq.client.{name}"})
        return values

    def _ask(self, question: dict[str, Any]) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(question) + "\n")
        stdin.flush()
        answer = stdout.readline()
        assert answer, f"the JVM has ended with {self._process.wait()}"
        return json.loads(answer)

    def stop(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def arrays(queues: Sequence[MessageQueue]) -> list[tuple[str, str, int]]:
    """Queues as the JVM reads them."""
    return [(queue.topic, queue.broker_name, queue.queue_id) for queue in queues]
