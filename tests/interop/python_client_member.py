"""A Python consumer as a separate process: ``python -m tests.interop.python_client_member NAMESRV GROUP TOPIC``.

It prints a line of JSON for each message, until its standard input ends; ``Member`` is its other half.
"""

import json
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

from rocketd.client.sync import Consumer

ROOT = Path(__file__).resolve().parents[2]


class Member:
    """Starts the process; ``arrivals`` are the messages printed so far."""

    def __init__(self, namesrv: str, group: str, topic: str) -> None:
        self.arrivals: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, namesrv, group, topic],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # otherwise it was killed within it
                self.arrivals.append(json.loads(line))

    def stop(self) -> int:
        """Let it end by itself, and return its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._end()

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self._process.stdin is not None
        self._process.kill()
        self._process.stdin.close()
        self._end()

    def _end(self) -> int:
        assert self._process.stdout is not None
        status = self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        return status


def main(namesrv: str, group: str, topic: str) -> None:
    def tell(message: Any) -> None:
        fields = {"body": message.body.decode(), "queueId": message.queue.queue_id}
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()

    with Consumer(group, namesrv, topics=topic, handler=tell, begin="earliest", rebalance_interval=1.0):
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
