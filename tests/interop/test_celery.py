"""A Celery worker against Apache's broker: tasks, retries, delays, and the task of a killed worker."""

from collections.abc import Callable
from pathlib import Path

import celery  # noqa: F401 - a test run without it skips this module
import pytest

from tests.interop.python_client_servers import APACHE, Servers
from tests.support.celery_workers import CeleryWorld, check_killed_worker, check_tasks_and_retries


@pytest.mark.parametrize("python_servers", [APACHE], indirect=True)
def test_worker_runs_tasks_of_apaches_broker(
    python_servers: Servers, fresh: Callable[[str], str], tmp_path: Path
) -> None:
    world = CeleryWorld(tmp_path, python_servers.namesrv, fresh("celery"))
    try:
        check_killed_worker(world, check_tasks_and_retries(world))
    finally:
        world.close()
