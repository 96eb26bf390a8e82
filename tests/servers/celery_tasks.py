"""Tasks of the tests of Celery. Each notes in a file that it ran. The broker and the queue are in the environment."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from celery import Celery

import rocketd.kombu  # noqa: F401 - registers rocketmq://

app = Celery("celery_tasks", broker=os.environ["BROKER_URL"])
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_concurrency=1,
    broker_transport_options={"queues": 1},
    task_default_queue=os.environ["QUEUE"],
)


def note(path, text):
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@app.task
def add(path, x, y):
    note(path, f"sum {x + y}")


@app.task(bind=True)
def fail_once(self, path):
    note(path, f"try {self.request.retries}")
    if self.request.retries == 0:
        raise self.retry(countdown=1)


@app.task(bind=True)
def late(self, path):
    note(path, "late" if datetime.now(UTC) >= datetime.fromisoformat(self.request.eta) else "too early")


@app.task
def hang_at_first(path):
    """Hang until the worker is killed; return at once in the next worker."""
    began = "began" in Path(path).read_text()
    note(path, "came again" if began else "began")
    if not began:
        time.sleep(600)
