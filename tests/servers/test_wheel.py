"""The pure wheel: to be built, installed and imported, it needs neither a compiler nor modules that only Unix has."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string

import pytest

from tests.support.places import ROOT

SECONDS = 120.0
# Compiled files, and files of former builds here, do not count as sources.
NO_SOURCES = shutil.ignore_patterns("*.so", "core.*.digest", "__pycache__")
IMPORTS = """
import sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
import concurrent.futures.thread, logging, os, random, threading  # these ask for os.fork
del os.fork, os.register_at_fork
import rocketd
import rocketd.client, rocketd.client.aio, rocketd.client.sync
from rocketd.client.sync import Consumer, Producer
Producer("wheel", "127.0.0.1:1"), Consumer("wheel", "127.0.0.1:1", topics="Wheel")
print(rocketd.__file__)
"""


def run(*command, cwd, **environment):
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "PATH": str(cwd / "no-programs"), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of the sources, with nothing in PATH."""
    directory = tmp_path_factory.mktemp("wheel")
    sources = directory / "sources"
    sources.mkdir()
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    for name in ("etc", "rocketd", "twisted"):
        shutil.copytree(ROOT / name, sources / name, ignore=NO_SOURCES)
    built = directory / "built"
    build = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-q", "-w", built, sources)
    run(*map(str, build), cwd=directory, ROCKETD_PURE="1")
    (wheel,) = built.iterdir()
    return wheel


def test_wheel_is_for_any_python_3_on_any_machine(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        parts = message_from_string(archive.read(about).decode())
    assert re.fullmatch(r"rocketd-[\d.]+-py3-none-any\.whl", wheel.name)
    assert parts.get_all("Tag") == ["py3-none-any"]
    assert parts["Root-Is-Purelib"] == "true"
    assert "rocketd/py.typed" in names
    data = {
        str(path.relative_to(ROOT))
        for end in ("properties", "html", "css")
        for path in (ROOT / "rocketd").rglob(f"*.{end}")
    }
    assert {name for name in names if not name.endswith((".py", "/py.typed")) and ".d" not in name} == data


def test_wheel_has_all_modules_and_twistd_plugins(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {
        str(path.relative_to(ROOT)) for package in ("rocketd", "twisted") for path in (ROOT / package).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == expected


def test_wheel_installs_and_imports(wheel):
    directory = wheel.parent.parent
    target = directory / "installed"
    run("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(target), str(wheel), cwd=directory)
    printed = run("-W", "error", "-c", IMPORTS, cwd=directory, PYTHONPATH=str(target))
    assert printed == f"{target / 'rocketd' / '__init__.py'}\n"
