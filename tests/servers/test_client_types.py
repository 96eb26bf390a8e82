"""Errors of type checkers in programs with the client: strict applications can rely on its types."""

import ast
import json
import os
import re
import subprocess
import sys

import pytest

import rocketd.client
import rocketd.testing
from rocketd.client import aio, sync
from tests.support.lacking import need_package, need_packages_of
from tests.support.places import ROOT

PROGRAM = ROOT / "tests" / "servers" / "typed_client.py"
PACKAGES = ROOT / "tests" / "servers" / "typed_packages.py"
SECONDS = 240.0


def mistakes():
    """The number and mypy's code of each line of the program that is to be refused."""
    lines = enumerate(PROGRAM.read_text().splitlines(), 1)
    return {(number, found[1]) for number, line in lines if (found := re.search(r"# refused: ([\w-]+)$", line))}


@pytest.mark.long
def test_mypy_refuses_only_the_mistakes(tmp_path):
    need_package("mypy")
    need_packages_of(PACKAGES.read_text())
    expected = mistakes()
    # Without the checks of the project's own setup: an application has none of its plugins.
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\n[mypy-rocketd.*]\nfollow_imports = silent\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", tmp_path / "cache", PROGRAM, PACKAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    found = re.findall(r"typed_client\.py:(\d+): error: .* \[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert {(int(number), code) for number, code in found} == expected, done.stdout + done.stderr
    assert f"Found {len(expected)} errors in 1 file" in done.stdout, done.stdout  # none in the other


@pytest.mark.long
def test_pyright_refuses_only_the_mistakes_and_no_example(tmp_path):
    need_package("pyright")
    need_packages_of(PACKAGES.read_text())
    settings = {
        "typeCheckingMode": "strict",
        "include": [os.path.relpath(each, tmp_path) for each in (PROGRAM, PACKAGES, ROOT / "examples")],
        "extraPaths": [str(ROOT)],
        # Some applications and servers come without types: what they do is not for this test.
        "reportMissingTypeStubs": False,
    }
    path = tmp_path / "pyrightconfig.json"
    path.write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--project", path, "--pythonpath", sys.executable, "--outputjson"],
        cwd=tmp_path,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    problems = json.loads(done.stdout)["generalDiagnostics"]
    found = {(os.path.basename(each["file"]), each["range"]["start"]["line"] + 1) for each in problems}
    assert found == {(PROGRAM.name, number) for number, _ in mistakes()}, done.stdout + done.stderr


def test_program_uses_all_names_of_the_faces():
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


def test_program_uses_all_names_of_the_packages():
    need_package("faststream")
    import rocketd.faststream

    tree = ast.parse(PACKAGES.read_text())
    for package in (rocketd.faststream, rocketd.testing):
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == package.__name__
            for alias in node.names
        }
        assert imported == set(package.__all__), package.__name__
