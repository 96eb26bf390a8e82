"""The guide to web frameworks: each section is one application, which runs as the section shows."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.lacking import need_package
from tests.support.places import ROOT
from tests.support.server_processes import SOURCES, ServerProcesses
from tests.support.shell_sessions import Session, section

GUIDE = ROOT / "docs" / "howto" / "web-frameworks.md"
SECONDS = 120.0
PACKAGES = {
    "FastAPI": ("fastapi", "uvicorn"),
    "Flask": ("flask", "gunicorn"),
    "Django": ("django", "gunicorn"),
}
"""Headings of sections, and their packages."""


@pytest.fixture(scope="module")
def name_server(tmp_path_factory):
    servers = ServerProcesses(tmp_path_factory.mktemp("servers"))
    try:
        servers.start_namesrv()
        servers.start_broker()
        yield servers.namesrv_address
    finally:
        servers.kill_all()


@pytest.fixture(scope="module")
def sections(name_server, tmp_path_factory):
    """The runs of all sections, two at once."""

    def run(heading):
        for package in PACKAGES[heading]:
            need_package(package)
        session = Session(
            tmp_path_factory.mktemp("site"), {"PYTHONPATH": SOURCES, "NAMESRV_ADDR": name_server}, SECONDS
        )
        try:
            session.run(section(GUIDE, heading))
        finally:
            session.close()

    with ThreadPoolExecutor(2) as pool:
        yield {heading: pool.submit(run, heading) for heading in PACKAGES}


@pytest.mark.parametrize("heading", PACKAGES)
def test_application_of_the_guide_serves_and_consumes(sections, heading):
    sections[heading].result()


def test_every_program_of_the_guide_is_run():
    assert sum(section(GUIDE, heading).count("```python") for heading in PACKAGES) == GUIDE.read_text().count(
        "```python"
    )
