"""A Celery worker as a process, with the tasks of ``tests.servers.celery_tasks``, and their notes."""

import sys
from pathlib import Path

from celery import Celery

import rocketd.kombu  # noqa: F401 - registers rocketmq://
from tests.support.places import ROOT
from tests.support.process import ServerProcess

TASKS = "tests.servers.celery_tasks"
SECONDS = 120.0


class CeleryWorld:
    """Workers of one queue, the application that sends them tasks, and the file of notes."""

    def __init__(self, directory: Path, name_server: str, queue: str) -> None:
        self.directory = directory
        self.notes = directory / "notes"
        self.environment = {
            "BROKER_URL": f"rocketmq://{name_server}",
            "QUEUE": queue,
            "PYTHONPATH": str(ROOT),
            "HOME": str(directory),
        }
        self.app = Celery(broker=self.environment["BROKER_URL"], set_as_current=False)
        self.app.conf.update(task_default_queue=queue, broker_transport_options={"queues": 1})
        self.workers: list[ServerProcess] = []

    def start_worker(self) -> ServerProcess:
        """Start one more worker."""
        command = [sys.executable, "-m", "celery", "--app", TASKS, "worker", "--pool", "solo", "--loglevel", "INFO"]
        log = self.directory / f"worker-{len(self.workers)}.log"
        self.workers.append(ServerProcess("worker", command, log, self.directory, self.environment))
        return self.workers[-1]

    def send(self, task: str, *arguments: object, **options: object) -> None:
        """Send a task. The file of notes is its first argument."""
        self.app.send_task(f"{TASKS}.{task}", (str(self.notes), *arguments), **options)

    def wait_for(self, worker: ServerProcess, note: str) -> None:
        """Return once a task has noted this."""
        worker.wait_for(note, lambda: note in self.lines(), SECONDS)

    def lines(self) -> list[str]:
        """Return all notes."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def close(self) -> None:
        """End everything, with the connections that Celery keeps beyond its own end."""
        self.app.amqp.producer_pool.force_close_all()
        self.app.pool.force_close_all()
        self.app.close()
        for worker in self.workers:
            if worker.exit_code is None:
                worker.kill()


def check_tasks_and_retries(world: CeleryWorld) -> ServerProcess:
    """Check a plain task, a retried one and a late one. Return the worker."""
    worker = world.start_worker()
    world.send("add", 1, 2)
    world.send("fail_once")
    world.send("late", countdown=2)
    for note in ("sum 3", "try 1", "late"):
        world.wait_for(worker, note)
    assert sorted(world.lines()) == ["late", "sum 3", "try 0", "try 1"]
    return worker


def check_killed_worker(world: CeleryWorld, worker: ServerProcess) -> None:
    """Check that the task of a killed worker comes again, and tasks behind it, but not those before it."""
    world.send("add", 5, 6)
    world.wait_for(worker, "sum 11")
    world.send("hang_at_first")
    world.wait_for(worker, "began")
    world.send("add", 10, 20)
    worker.kill()
    other = world.start_worker()
    world.wait_for(other, "came again")
    world.wait_for(other, "sum 30")
    assert world.lines()[-4:] == ["sum 11", "began", "came again", "sum 30"]
    assert other.stop(SECONDS) == 0
