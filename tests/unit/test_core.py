"""Which core runs: compiled modules are taken when they belong to the sources beside them, and never else."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import rocketd
from rocketd import core
from rocketd.core import State
from tests.support.places import ROOT

PACKAGE = Path(rocketd.__file__).parent


class CoreTestCase(SynchronousTestCase):
    def setUp(self):
        """Copy the sources of the core, and make up the compiled modules."""
        self.package = Path(os.path.abspath(self.mktemp())) / "rocketd"
        for module in core.MODULES:
            source = self.package / core.source_of(module)
            source.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PACKAGE / core.source_of(module), source)
        for name in ("__init__.py", "core.py"):
            shutil.copy(PACKAGE / name, self.package)
        self.patch(os, "environ", {key: value for key, value in os.environ.items() if key != core.PURE})

    def compile(self):
        for module in core.MODULES:
            self.compiled(module).touch()
        self.note().write_text(core.digest(str(self.package)) + "\n")

    def compiled(self, module):
        return (self.package / core.source_of(module)).with_suffix(EXTENSION_SUFFIXES[0])

    def note(self):
        return self.package / core.DIGEST_FILE

    def examine(self):
        return core.examine(str(self.package))

    def run_python(self, code, **environment):
        """Run code with this copy of the package; returns the lines it prints, and allows no word more."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(self.package.parent), "PYTHONDONTWRITEBYTECODE": "1", **environment},
            cwd=self.package.parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        self.assertEqual(done.stderr, "")
        return done.stdout.splitlines()


class ExamineTests(CoreTestCase):
    def test_sources_alone(self):
        self.assertIs(self.examine(), State.SOURCES)

    def test_compiled_from_these_sources(self):
        self.compile()
        self.assertIs(self.examine(), State.COMPILED)

    def test_any_edit_makes_compiled_modules_stale(self):
        for module in core.MODULES:
            self.compile()
            with (self.package / core.source_of(module)).open("a") as file:
                file.write("\n")
            self.assertIs(self.examine(), State.STALE, module)

    def test_missing_module_makes_compiled_modules_stale(self):
        self.compile()
        self.compiled(core.MODULES[-1]).unlink()
        self.assertIs(self.examine(), State.STALE)

    def test_missing_or_malformed_note_makes_compiled_modules_stale(self):
        self.compile()
        for text in ("", "0", "\N{SNOWMAN}"):
            self.note().write_text(text, encoding="utf-8")
            self.assertIs(self.examine(), State.STALE)
        self.note().unlink()
        self.assertIs(self.examine(), State.STALE)

    def test_environment_variable_selects_sources(self):
        self.compile()
        for value, state in (("1", State.UNWANTED), ("0", State.COMPILED), ("", State.COMPILED)):
            os.environ[core.PURE] = value
            self.assertIs(self.examine(), state)


class ImportTests(CoreTestCase):
    code = "import rocketd.core, rocketd.common.message_properties as p; print(rocketd.core.kind()); print(p.__file__)"

    def test_stale_modules_are_not_imported(self):
        self.compile()
        self.note().unlink()
        lines = self.run_python(self.code)
        self.assertEqual(lines, [core.STALE_KIND, str(self.package / "common/message_properties.py")])

    def test_unwanted_modules_are_not_imported(self):
        self.compile()
        lines = self.run_python(self.code, **{core.PURE: "1"})
        self.assertEqual(lines, [core.PURE_KIND, str(self.package / "common/message_properties.py")])

    def test_compiled_modules_are_imported(self):
        self.compile()
        # What stands for a compiled module is empty, and cannot be loaded: it was tried.
        code = (
            "import rocketd.core\nprint(rocketd.core.kind())\n"
            "try: import rocketd.common.message_properties\nexcept ImportError as error: print(error.path)"
        )
        self.assertEqual(
            self.run_python(code), [core.COMPILED_KIND, str(self.compiled("rocketd.common.message_properties"))]
        )

    def test_other_modules_are_left_to_python(self):
        finder = core.SourcesFirst(str(self.package))
        self.assertIsNone(finder.find_spec("rocketd.core", None))
        spec = finder.find_spec("rocketd.store.format.compose", None)
        self.assertEqual(spec.origin, str(self.package / "store/format/compose.py"))


class ThisProcessTests(SynchronousTestCase):
    def test_all_modules_are_of_one_kind(self):
        for name in core.MODULES:
            path = importlib.import_module(name).__file__
            self.assertEqual(path.endswith(".py"), core.kind() != core.COMPILED_KIND, path)

    def test_compiler_version_equals_type_checker_version(self):
        built = re.search(r'"mypy==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
        tested = re.search(r"^    mypy == ([\d.]+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
        self.assertEqual(built[1], tested[1])
