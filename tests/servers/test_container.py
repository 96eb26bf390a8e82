"""The image of etc/container, as far as it can be shown without a container runtime.

Its command runs as its user, with its variables, in a bare root directory that is read-only but for the volume.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.lacking import end_test_lacking
from tests.support.places import ROOT
from tests.support.server_processes import SOURCES, START_LIMIT

LINES = (ROOT / "etc" / "container" / "Containerfile").read_text().replace("\\\n", " ")
IMAGE = LINES[LINES.rindex("\nFROM ") :]
MAKE_ROOT = r"""
set -eu
root=$1; shift
mount -t tmpfs none "$root"
bind() { mkdir -p "$root$2"; mount --rbind "$1" "$root$2"; mount -o remount,bind,ro "$root$2"; }
for path in /bin /sbin /lib /lib64; do [ ! -L $path ] || cp -P $path "$root$path"; done
for path in "$@"; do bind "$path" "$path"; done
bind "$SOURCES" /imported/sources
bind "$PACKAGES" /imported/packages
mkdir -p "$root/dev" "$root/etc/rocketd" "$root/opt/rocketd" "$root/tmp" "$root/proc" "$root/var/lib/rocketd"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
cp $COPIED "$root/etc/rocketd/"
chroot "$root" "$PYTHON" -m venv --without-pip /opt/rocketd
printf '%s\n' /imported/sources /imported/packages >"$root/opt/rocketd/lib/$LIBRARY/site-packages/test.pth"
cp "$SCRIPT" "$root/opt/rocketd/bin/rocketd"
chmod 755 "$root/opt/rocketd/bin/rocketd"
mount -t tmpfs none "$root/tmp"
mount -t tmpfs none "$root/var/lib/rocketd"
chown "$OWNER" "$root/var/lib/rocketd"
mount -o remount,ro "$root"
exec "$PYTHON" "$RUN" "$root"
"""
RUN = '''
"""Brings the loopback up, runs the command until the health check passes, and stops it."""
import fcntl, json, os, signal, socket, struct, subprocess, sys, time

with socket.socket() as some:
    fcntl.ioctl(some, 0x8914, struct.pack("16sh14x", b"lo", 1))
plan = json.loads(os.environ["PLAN"])
inside = ["chroot", "--userspec=" + plan["user"], sys.argv[1], "env", "-i", *plan["variables"]]
def run(*words):
    return subprocess.run([*inside, *words], capture_output=True, text=True)
written = run("sh", "-c", "touch /opt/x /etc/rocketd/x")
assert written.stderr.count("Read-only file system") == 2, written
server = subprocess.Popen([*inside, *plan["entry"], *plan["command"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
try:
    while run(*plan["check"]).returncode:
        assert server.poll() is None, server.stdout.read().decode()
        time.sleep(0.05)
    # chroot and env have replaced themselves, so that this is the server.
    server.send_signal(signal.SIGTERM)
    print(server.communicate()[0].decode())
    assert server.wait() == 0
    assert run(*plan["check"]).returncode == 1
finally:
    server.kill()
'''
SCRIPT = """#!/opt/rocketd/bin/python
from rocketd.__main__ import main

raise SystemExit(main())
"""


def words(name):
    (line,) = re.findall(rf"(?m)^{name} (?:.*? CMD )?(\[.*\])$", IMAGE)
    return json.loads(line)


def test_image_serves_as_its_user_on_a_read_only_root_and_is_healthy(tmp_path):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        end_test_lacking("only root, with unshare of util-linux, can make the root directory of this test")
    (user,) = re.findall(r"(?m)^USER (\d+:\d+)$", IMAGE)
    (variables,) = re.findall(r"(?m)^ENV (.*)$", IMAGE)
    (copied,) = re.findall(r"(?m)^COPY (.*) /etc/rocketd/$", IMAGE)
    plan = {
        "user": user,
        "variables": variables.split(),
        "entry": words("ENTRYPOINT"),
        "command": words("CMD"),
        "check": words("HEALTHCHECK"),
    }
    for name, text in (("make_root.sh", MAKE_ROOT), ("run.py", RUN), ("rocketd", SCRIPT)):
        (tmp_path / name).write_text(text)
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    root = tmp_path / "root"
    root.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PLAN": json.dumps(plan),
        "PYTHON": sys._base_executable,
        "LIBRARY": Path(packages).parent.name,
        "COPIED": " ".join(str(ROOT / path) for path in copied.split()),
        "SOURCES": SOURCES,
        "PACKAGES": packages,
        "SCRIPT": str(tmp_path / "rocketd"),
        "RUN": str(tmp_path / "run.py"),
        "OWNER": user,
    }
    python = [] if sys.base_prefix.startswith("/usr") else [sys.base_prefix]
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "--net",
            "--propagation",
            "private",
            "sh",
            tmp_path / "make_root.sh",
            root,
            "/usr",
            *python,
        ],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "store /var/lib/rocketd/store" in done.stdout
    assert "Traceback" not in done.stdout
