"""The harness itself: its messages about missing tools, the causes of new builds, and reports about clients."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop import toolchain
from tests.interop.toolchain import PROGRAMS, BuildError, ClientError, Program, run_client
from tests.support.quick_java import directory_of_archives, read_archive


class Script(Program):
    """A client program written as a Python script; counts its builds."""

    name = "script"

    def __init__(self, sources: Path) -> None:
        self._sources = sources
        self.builds = 0

    @property
    def sources(self) -> Path:
        return self._sources

    def build(self, sources: Path, built: Path) -> None:
        self.builds += 1
        if "broken" in (sources / "client.py").read_text():
            raise BuildError("broken")
        shutil.copy(sources / "client.py", built)

    def command(self, built: Path, home: Path, jvm: Sequence[str]) -> list[str]:
        return [sys.executable, str(built / "client.py")]


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETD_INTEROP_CACHE", str(tmp_path / "cache"))
    sources = tmp_path / "sources"
    sources.mkdir()
    program = Script(sources)
    monkeypatch.setitem(PROGRAMS, "script", program)
    return program


def write(script, text):
    (script.sources / "client.py").write_text(text)


def test_lines_are_parsed_and_arguments_passed_on(script, tmp_path):
    write(script, "import json, os, sys\nprint(json.dumps({'argv': sys.argv[1:], 'home': os.environ['HOME']}))")
    run = run_client("script", "send", "--count", 3, home=tmp_path)
    assert run.lines == [{"argv": ["send", "--count", "3"], "home": str(tmp_path)}]


def test_failing_client_is_reported_with_its_output(script, tmp_path):
    write(script, "import sys\nprint('{}')\nsys.exit('no route')")
    with pytest.raises(ClientError, match=r"(?s)script send: exit status 1 after 1 lines.*no route"):
        run_client("script", "send", home=tmp_path)


def test_hanging_client_is_ended(script, tmp_path):
    write(script, "import threading\nprint('{}', flush=True)\nthreading.Event().wait()")
    with pytest.raises(ClientError, match=r"not done in 1 s after 1 lines"):
        run_client("script", "send", home=tmp_path, limit=1)


def test_only_a_change_causes_a_new_build(script, tmp_path):
    write(script, "")
    first = script.built()
    assert script.built() == first
    assert script.builds == 1
    write(script, "print('{}')")
    assert script.built() != first
    assert script.builds == 2


def test_failed_build_is_retried(script):
    write(script, "broken")
    for _ in range(2):
        with pytest.raises(BuildError, match="broken"):
            script.built()
    assert script.builds == 2


@pytest.mark.parametrize("name", ["java", "go", "node"])
def test_missing_tools_are_named(name, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert PROGRAMS[name].missing() == f"the {name} client needs {', '.join(PROGRAMS[name].tools)} in PATH"


def test_wheel_for_another_machine_is_reported_missing(monkeypatch):
    monkeypatch.setattr(toolchain.platform, "machine", lambda: "aarch64")
    assert "x86_64" in PROGRAMS["cpp"].missing()


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_missing_tool_skips_but_fails_in_ci(ci, outcome, monkeypatch, lacking):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no compiler"):
        lacking("no compiler")


def test_archives_of_classes_are_written_once_and_read_if_there(tmp_path):
    made = []

    def write(directory):
        made.append(directory)
        (directory / "server.jsa").write_text("")

    for _ in range(2):
        archives = directory_of_archives(tmp_path, "jars", write)
        options = read_archive(archives / "server.jsa")
        assert options == ("-Xlog:disable", f"-XX:SharedArchiveFile={archives}/server.jsa")
    assert len(made) == 1
    assert read_archive(archives / "other.jsa") == ()


def test_archives_of_classes_that_cannot_be_written_are_tried_once_and_not_read(tmp_path):
    made = []

    def fail(directory):
        made.append(directory)
        (directory / "server.jsa").write_text("half of it")
        raise OSError("no room")

    for _ in range(2):
        archives = directory_of_archives(tmp_path, "jars", fail)
        assert read_archive(archives / "server.jsa") == ()
    assert len(made) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
