"""The guide to testing: its programs are tests, which pytest runs, with the plugin and without."""

import os
import re
import subprocess
import sys
from pathlib import Path

from server_processes import SOURCES

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "testing.md"
LIMIT = 120  # seconds
CONFIG = "[pytest]\naddopts = -p no:rocketd -p rocketd.testing.pytest_plugin --strict-markers -p no:cacheprovider\n"


def run_pytest(directory, *arguments):
    (directory / "pytest.ini").write_text(CONFIG)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=short", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def test_programs_of_the_guide(tmp_path):
    programs = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 6
    for number, program in enumerate(programs):
        (tmp_path / f"test_program_{number}.py").write_text(program)
    ran = run_pytest(tmp_path)
    # The first is said to fail, and why.
    assert re.search(r"1 failed, 8 passed", ran.stdout), ran.stdout
    assert "TopicNotFoundError" in ran.stdout


def test_commands_of_the_guide():
    session = re.search(r"^```console\n\$ python (.*?)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    lines = session.group(2).splitlines()
    ran = subprocess.run(
        [sys.executable, *session.group(1).split()],
        input="".join(f"{line}\n" for line in lines[1::2]),
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    address, *answers = ran.stdout.splitlines()
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address), ran.stderr
    assert answers == lines[2::2]


def test_plugin_imports_nothing_until_its_fixture_is_asked_for(tmp_path):
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\n\ndef test_nothing():\n"
        "    assert 'rocketd.testing.pytest_plugin' in sys.modules\n"
        "    assert not {'rocketd.broker', 'rocketd.client', 'twisted', 'rocketd.testing.cluster'} & set(sys.modules)\n"
    )
    ran = run_pytest(tmp_path, "-p", "no:pytest_twisted", "-p", "no:twisted")
    assert ran.returncode == 0, ran.stdout + ran.stderr
