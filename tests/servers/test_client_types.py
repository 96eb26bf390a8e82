"""What mypy says of a program that uses the client: its types are there for applications that are strict."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import rocketd.client
from rocketd.client import aio, sync

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "servers" / "typed_client.py"
SECONDS = 240.0


def test_mypy_refuses_mistakes_and_nothing_else(tmp_path):
    text = PROGRAM.read_text()
    expected = {
        (number, found.group(1))
        for number, line in enumerate(text.splitlines(), 1)
        if (found := re.search(r"# refused: ([\w-]+)$", line))
    }
    # Without the checks of the project's own setup: an application has none of its plugins.
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n[mypy-rocketd.*]\nfollow_imports = silent\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", tmp_path / "cache", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    found = re.findall(r"typed_client\.py:(\d+): error: .* \[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert {(int(number), code) for number, code in found} == expected, done.stdout + done.stderr
    assert f"Found {len(expected)} errors in 1 file" in done.stdout, done.stdout


def test_the_program_names_all_that_the_faces_have():
    tree = ast.parse(PROGRAM.read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "rocketd.client"
        for alias in node.names
    }
    assert imported == {*rocketd.client.__all__, "aio", "sync"}
    for face in (aio, sync):
        assert set(face.__all__) < set(rocketd.client.__all__), face
