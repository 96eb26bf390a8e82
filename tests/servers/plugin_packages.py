"""Third-party packages shown on pages of the guide: written from the page, installed into a new environment."""

import re
import subprocess
import sys
import sysconfig
import venv

from tests.support.server_processes import ServerProcesses


class Environment:
    """A virtual environment that sees the packages of this one, to install into."""

    def __init__(self, directory):
        venv.create(directory, with_pip=False, symlinks=True)
        self.python = directory / "bin" / "python"
        (site_packages,) = (directory / "lib").glob("python*/site-packages")
        paths = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        (site_packages / "outer.pth").write_text("".join(f"{path}\n" for path in paths))

    def pip(self, *arguments):
        command = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def install(self, package):
        self.pip("install", "--no-deps", "--no-build-isolation", "--no-index", package)


class Servers(ServerProcesses):
    """A broker that runs in such an environment."""

    def __init__(self, directory, environment, **settings):
        super().__init__(directory, namesrvAddr="", **settings)
        self._python = str(environment.python)

    def _command(self, name, config):
        return [self._python, *super()._command(name, config)[1:]]


def files_of(page):
    """The files that a page shows, by path: a bold path in a paragraph, then the next code block."""
    return dict(re.findall(r"^\*\*`([^`]+)`\*\*.*?^```\w+\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))


def write_package(page, directory, change=lambda text: text):
    for name, text in files_of(page).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(change(text))
    return directory
