"""Takes the pictures of the console in docs/pictures: `python -m docsite.screenshots`.

It starts `rocketd up`, fills it with messages, groups with lag and dead letters, and photographs pages of the console at two
widths, light and dark. Needs Chromium, and Playwright and Pillow (`pip install playwright pillow`).
"""

import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from rocketd.client import Message, ReceivedMessage
from rocketd.client.sync import Consumer, Producer

DIRECTORY = Path(__file__).resolve().parent.parent / "docs" / "pictures"
ORDERS = 240
COLOURS = 64
"""Number of colours of a picture."""
SECONDS = 60
"""Maximum time for the cluster to get into the state of the pictures."""


@dataclass(frozen=True)
class Width:
    """A size of the window, in CSS pixels, and the pixels of the screen for each."""

    name: str
    size: ViewportSize
    scale: float


WIDTHS = (
    Width("wide", {"width": 1000, "height": 800}, 1.4),
    Width("phone", {"width": 390, "height": 800}, 1.6),
)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


class PaymentRefusedError(Exception):
    """A failure of the shown application."""

    __module__ = "shop"


@contextmanager
def cluster(directory: str) -> Iterator[tuple[str, str]]:
    """Run two brokers and the console. The value is the addresses of the name server and of the console."""
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--console", "0"]
    command = [
        sys.executable,
        "-m",
        "rocketd",
        "up",
        "--data",
        directory,
        *ports,
        "--brokers",
        "2",
        "-o",
        "brokerName=broker",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = {}
            for line in process.stdout or ():
                found[line.split("  ")[0]] = line.split()[-1]
                if line.startswith("stop"):
                    break
            yield found["name server"], found["console"]
        finally:
            process.terminate()


@contextmanager
def applications(namesrv: str) -> Iterator[None]:
    """Fill the cluster, and keep its consumers online."""
    with Producer("shop", namesrv) as producer:
        for topic, body in (("Payments", b"paid"), ("Shipments", b"shipped")):
            producer.send_batch([Message(topic, body) for _ in range(60)])
        for number in range(ORDERS):
            order = {"order": 1000 + number, "customer": f"c{number % 17}", "items": [{"sku": "A-7", "count": 2}]}
            message = Message("Orders", json.dumps(order).encode(), tags="express" if number % 3 else "standard")
            message.keys = [f"order-{1000 + number}"]
            producer.send(message)
        done: dict[str, int] = {}

        def count(group: str) -> None:
            done[group] = done.get(group, 0) + 1

        def bill(message: ReceivedMessage[bytes]) -> None:
            count("billing")
            number = message.body and json.loads(message.body)["order"]
            if number % 40 == 0:
                raise PaymentRefusedError(f"the bank refused order {number}")
            if number % 90 == 0:
                raise TimeoutError("the bank did not answer in 5 s")

        def ship(_: ReceivedMessage[bytes]) -> None:
            count("shipping")
            if done["shipping"] > ORDERS // 2:
                time.sleep(SECONDS)

        with (
            Consumer("billing", namesrv, topics="Orders", begin="earliest", handler=bill, max_reconsume_times=0),
            Consumer("accounts", namesrv, topics="Payments", begin="earliest", handler=lambda _: None),
            Consumer("shipping", namesrv, topics="Orders", begin="earliest", handler=ship, concurrency=1, grace=0),
        ):
            end = time.monotonic() + SECONDS
            while (done.get("billing", 0) < ORDERS or done.get("shipping", 0) < ORDERS // 2) and time.monotonic() < end:
                time.sleep(0.1)
            time.sleep(6)  # the offsets are stored
            stop = Event()
            traffic = Thread(target=keep_sending, args=(producer, stop))
            traffic.start()
            time.sleep(12)  # the brokers have rates
            try:
                yield
            finally:
                stop.set()
                traffic.join()


def keep_sending(producer: Producer[bytes], stop: Event) -> None:
    """Send a message every 50 ms, so that there are rates."""
    while not stop.wait(0.05):
        producer.send(Message("Payments", b"paid"))


def photograph(browser: Browser, console: str) -> None:
    """Take the pictures of all pages."""
    for width in WIDTHS:
        for scheme in SCHEMES:
            page = browser.new_page(viewport=width.size, device_scale_factor=width.scale, color_scheme=scheme)
            for name, visit in PAGES.items():
                visit(page, console.rstrip("/"))
                write(page.screenshot(), DIRECTORY / f"console-{name}-{width.name}-{scheme}.png")
            page.close()


def write(png: bytes, path: Path) -> None:
    """Write a picture with few colours."""
    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


def _overview(page: Page, console: str) -> None:
    page.goto(f"{console}/")


def _topic(page: Page, console: str) -> None:
    page.goto(f"{console}/topic?name=Orders")


def _message(page: Page, console: str) -> None:
    page.goto(f"{console}/messages?topic=Orders")
    page.locator('a[href*="/message?"]').first.click()


def _dead_letters(page: Page, console: str) -> None:
    page.goto(f"{console}/dead-letters?group=billing")


PAGES = {"overview": _overview, "topic": _topic, "message": _message, "dead-letters": _dead_letters}


def main() -> None:
    """Take all pictures."""
    with (
        tempfile.TemporaryDirectory() as directory,
        cluster(directory) as (namesrv, console),
        applications(namesrv),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        photograph(browser, console)
        browser.close()


if __name__ == "__main__":
    main()
