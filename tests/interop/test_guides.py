"""Programs of guides against Apache's servers: in web frameworks, and for people who come from other clients."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.python_client_servers import APACHE, Servers
from tests.support import wire
from tests.support.lacking import need_package
from tests.support.places import ROOT
from tests.support.server_processes import SOURCES
from tests.support.shell_sessions import Session, printed_programs, section

GUIDES = ROOT / "docs" / "howto"
FRAMEWORKS = {"FastAPI": ("fastapi", "uvicorn"), "Flask": ("flask", "gunicorn"), "Django": ("django", "gunicorn")}
SECONDS = 120.0


def environment(servers: Servers) -> dict[str, str]:
    return {"PYTHONPATH": SOURCES, "NAMESRV_ADDR": servers.namesrv}


@pytest.mark.parametrize("python_servers", [APACHE], indirect=True)
@pytest.mark.parametrize("heading", FRAMEWORKS)
def test_application_of_a_web_framework_serves_and_consumes(
    python_servers: Servers, heading: str, tmp_path: Path
) -> None:
    for package in FRAMEWORKS[heading]:
        need_package(package)
    session = Session(tmp_path, environment(python_servers), SECONDS)
    try:
        session.run(section(GUIDES / "web-frameworks.md", heading))
    finally:
        session.close()


@pytest.mark.parametrize("python_servers", [APACHE], indirect=True)
def test_programs_for_people_from_other_clients_print_their_output(python_servers: Servers) -> None:
    printed = printed_programs(GUIDES / "from-other-clients.md")
    assert printed
    wire.create_topic(python_servers.broker, "FromWheel")

    def run(program: str) -> tuple[str, str]:
        command = [sys.executable, "-W", "error", "-c", program]
        variables = {**os.environ, **environment(python_servers)}
        ended = subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return ended.stdout, ended.stderr

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, [program for program, _ in printed])) == [(output, "") for _, output in printed]
