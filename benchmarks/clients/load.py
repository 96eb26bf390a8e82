"""What the Python programs of this comparison share: they read a load a line from standard input, and answer with a line.

A line is ``KIND NUMBER``: ``send SECONDS``, ``window SECONDS``, ``batch SECONDS`` or ``consume TOPIC COUNT``; the answer is
``{"ops": messages, "seconds": how long}``, or ``{"error": text}``. Imported by programs that run outside rocketd, too.
"""

import argparse
import itertools
import json
import sys
import threading
import time
import traceback

BODY = bytes(range(32, 96)) * 16  # 1 KiB
WINDOW = 64  # sends under way at once
BATCH = 32
TOPIC = "ClientBench"

_groups = itertools.count()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--name", required=True, help="what the groups of this program begin with")
    return parser.parse_args()


def new_group(name: str) -> str:
    return f"{name}_{next(_groups)}"


class Countdown:
    """Counts messages that handlers get, in any thread, until there are enough."""

    def __init__(self, wanted: int) -> None:
        self._left = wanted
        self._lock = threading.Lock()
        self._enough = threading.Event()

    def handle(self, _: object) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._enough.set()

    def wait(self) -> None:
        self._enough.wait()


def tell(answer: dict) -> None:
    print(json.dumps(answer), flush=True)


def answer_all(loads: dict) -> None:
    """Answer lines until there are none; ``loads`` are functions of the words that follow, which return a count."""
    tell({"ready": True})
    for line in sys.stdin:
        kind, *words = line.split()
        begin = time.monotonic()
        try:
            count = loads[kind](*words)
        except Exception:
            tell({"error": traceback.format_exc()})
        else:
            tell({"ops": count, "seconds": time.monotonic() - begin})
