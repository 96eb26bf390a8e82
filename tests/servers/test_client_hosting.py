"""Clients of all faces in child processes: on a thread, a loop, a reactor, forked, in gunicorn, and never stopped."""

import http.client
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.complaints import complaints
from tests.support.lacking import need_package
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.server_processes import SOURCES, ServerProcesses

PROGRAMS = Path(__file__).with_name("hosting_programs.py")
GEVENT_PROGRAMS = PROGRAMS.with_name("gevent_programs.py")
SECONDS = 120.0
TOPIC = "Hosting"
MULTITHREADED = "ignore:This process:DeprecationWarning"
"""The warning of Python 3.12 about every fork beside a thread, such as that of the parent's clients here."""


@pytest.fixture(scope="module")
def name_server(tmp_path_factory):
    servers = ServerProcesses(tmp_path_factory.mktemp("servers"))
    topics = servers.store / "config" / "topics.json"
    topics.parent.mkdir(parents=True)
    topic = {"topicName": TOPIC, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    topics.write_text(json.dumps({"topicConfigTable": {TOPIC: topic}}))
    try:
        servers.start_namesrv()
        servers.start_broker()
        yield servers.namesrv_address
    finally:
        servers.kill_all()


def environment(**more):
    path = os.pathsep.join((SOURCES, str(PROGRAMS.parents[2])))
    return {**os.environ, "PYTHONPATH": path, **more}


def run_program(*command):
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.parametrize(
    "program",
    [
        ("imports",),
        ("thread",),
        ("never_stopped",),
        ("stuck_pool",),
        ("loop",),
        ("loop_never_stopped",),
        *(("forked", method, face) for method in ("fork", "spawn") for face in ("sync", "aio", "twisted")),
    ],
    ids=" ".join,
)
def test_hosting_program_exchanges_messages(name_server, program):
    name, *arguments = program
    if name == "imports":
        for package in ("faststream", "kombu", "opentelemetry", "sqlalchemy"):
            need_package(package)
    # An open connection at the end of a loop without clean-up deserves its warning.
    options = () if name == "loop_never_stopped" else ("-X", "dev", "-W", "error", "-W", MULTITHREADED)
    run = run_program(*options, PROGRAMS, name, name_server, *arguments)
    printed = run.stderr
    if name == "never_stopped":  # requests of its consumers are under way then: pulls, stored offsets and others
        printed = re.sub(r"(?m)^.* failed: the connection closed before the answer came\n", "", printed)
    assert (run.stdout, complaints(printed), run.returncode) == ("right\n", [], 0)


@pytest.mark.parametrize("program", ["patched", "patched_late", "patched_in_part"])
def test_gevent_program_exchanges_messages(name_server, program):
    need_package("gevent")
    run = run_program("-X", "dev", "-W", "error", "-W", MULTITHREADED, GEVENT_PROGRAMS, program, name_server)
    assert (run.stdout, complaints(run.stderr), run.returncode) == ("right\n", [], 0)


@contextmanager
def gunicorn(directory, application, *options, **variables):
    """Run it with two workers; gives its port when the application answers."""
    need_package("gunicorn")
    port = free_port()
    bind = ["--bind", f"127.0.0.1:{port}", "--workers", "2", "--worker-tmp-dir", str(directory)]
    process = ServerProcess(
        "gunicorn",
        [sys.executable, "-m", "gunicorn", *bind, *options, application],
        directory / "gunicorn.log",
        directory,
        environment(HOME=str(directory), **variables),
    )
    try:
        process.wait_for("it answers", lambda: get(port) is not None, SECONDS)
        yield port
    finally:
        process.stop()


def test_gunicorn_with_preload_exchanges_messages(name_server, tmp_path):
    with gunicorn(tmp_path, "tests.servers.hosting_programs:application", "--preload", NAME_SERVER=name_server) as port:
        answers = [get(port) for _ in range(20)]
    assert {answer.rpartition(" ")[0] for answer in answers} == {"exchanged"}


def test_gunicorn_with_gevent_workers_exchanges_messages(name_server, tmp_path):
    need_package("gevent")
    variables = {"GEVENT_NAME_SERVER": name_server}
    with (
        gunicorn(
            tmp_path, "tests.servers.gevent_programs:application", "--worker-class", "gevent", **variables
        ) as port,
        ThreadPoolExecutor(8) as pool,
    ):
        answers = list(pool.map(get, [port] * 8))
    assert set(answers) == {"exchanged"}


def get(port):
    """Return the answer of the application, or None while nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/")
        response = connection.getresponse()
        body = response.read().decode()
        assert response.status == 200, body
        return body
    except ConnectionError:
        return None
    finally:
        connection.close()


def test_clients_of_twisted_log_to_the_standard_logging(name_server):
    """A Twisted application that begins no log of its own sees the failure of a handler with its traceback."""
    done = run_program(PROGRAMS, "failing_handler", name_server)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^WARNING rocketd\.\S+ \S+failing failed on .*ZeroDivisionError", done.stderr, re.MULTILINE), (
        done.stderr
    )
    assert "return 1 / 0" in done.stderr
