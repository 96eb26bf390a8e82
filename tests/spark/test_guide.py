"""docs/spark.md, run as it is written: from `rocketd up` to a live query, an archive, and a store again.

The guide uses the default ports, so it runs in a separate network, in which no other program has them.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lacking import end_test_lacking
from tests.support.places import ROOT

GUIDE = ROOT / "docs" / "spark.md"
LIMIT = 1500  # seconds

# Brings the loopback interface of a new network up: 0x8913 and 0x8914 read and write an interface's flags, 1 is "up".
LOOPBACK_UP = """
import fcntl, socket, struct
with socket.socket() as any_socket:
    request = bytearray(struct.pack("16sh14x", b"lo", 0))
    fcntl.ioctl(any_socket, 0x8913, request)
    (flags,) = struct.unpack_from("h", request, 16)
    struct.pack_into("h", request, 16, flags | 1)
    fcntl.ioctl(any_socket, 0x8914, request)
"""


def tutorial():
    """Return the steps of the tutorial, (language, text) each, and the output shown for them."""
    text = GUIDE.read_text()
    begin = text.index("## From nothing")
    blocks = re.findall(
        r"^```(\w+)\n(.*?)^```$", text[begin : text.index("\n## ", begin + 1)], re.MULTILINE | re.DOTALL
    )
    steps = [(kind, block) for kind, block in blocks if kind in ("sh", "python")]
    return steps, [block for kind, block in blocks if kind == "text"]


def as_script(steps):
    lines = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"]
    for number, (kind, block) in enumerate(steps):
        lines.append(f"echo '=== step {number}'")
        lines.append(block if kind == "sh" else f"python - <<'PROGRAM'\n{block}PROGRAM")
    return "\n".join(lines)


@pytest.mark.timeout(LIMIT + 120)
def test_tutorial_prints_the_shown_output(tmp_path):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        end_test_lacking("only root, with unshare of util-linux, can make the network that the tutorial runs in")
    steps, expected = tutorial()
    assert len(steps) == 8
    assert len(expected) == 2
    script = tmp_path / "tutorial.sh"
    script.write_text(as_script(steps))
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    (tmp_path / "loopback_up.py").write_text(LOOPBACK_UP)
    command = f"{sys.executable} loopback_up.py && exec bash {script}"
    ran = subprocess.run(
        ["unshare", "--net", "timeout", "--kill-after=10", str(LIMIT), "bash", "-c", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT + 60,
    )
    said = f"{ran.stdout}\n--- stderr\n{ran.stderr}"
    assert ran.returncode == 0, said
    for text in expected:
        assert text.strip() in ran.stdout, said
    for line in ("works", "an order of 990", "an order of 5000"):
        assert line in ran.stdout, said


STAND_IN = """#!/bin/bash
words="$*"
case "$words" in
    "$FAILING"*) exit 1 ;;
    up) echo stop; exec sleep 1500 ;;
    "spark sql"*) printf 'open 400\\nopen 401\\n'; exec sleep 1500 ;;
    produce*) [ "$FAILING" != up ] && cat ;;
esac
"""


@pytest.mark.parametrize("failing", ["up", "spark sql"])
def test_tutorial_ends_if_a_program_in_the_background_fails(failing, tmp_path):
    """The commands wait for the output of two programs that run in the background, which may fail first."""
    program = tmp_path / "rocketd"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    steps, _ = tutorial()
    script = as_script([(kind, block) for kind, block in steps if kind == "sh"])
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "FAILING": failing},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert "No such process" in ran.stderr, ran.stderr
    assert ran.returncode != 0, ran.stdout


def test_tables_equal_the_declarations():
    from rocketd.spark.gen_docs import page

    assert page(GUIDE.read_text()) == GUIDE.read_text()
