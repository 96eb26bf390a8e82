"""Tests that lack a package or a tool: skipped with a reason, failed in CI."""

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import SkipTest, mock

from twisted.trial.unittest import SynchronousTestCase

from tests.support.lacking import OPTIONAL_PACKAGES, missing_package, need_package, need_packages_of
from tests.support.places import ROOT

MODULE = "import rocketd\nimport redis.nothing_like_it\n\n\ndef test_one():\n    pass\n"
DISTRIBUTIONS = {
    "prometheus_client": "faststream",
    "mkdocs": "mkdocs-material",
    "mkdocstrings": "mkdocstrings-python",
    "numpy": "numpy",
    "google": "protobuf",
    "opentelemetry": "opentelemetry-api",
}
"""Import name: the distribution or extra that installs it, if the names differ."""


class LackingTests(SynchronousTestCase):
    def test_missing_package_of_an_import_is_named(self):
        error = ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql")
        self.assertEqual(missing_package(error), "pyspark")
        for other in (None, ValueError(), ImportError("x", name="pyspark"), ModuleNotFoundError("x", name="rocketd.x")):
            self.assertIsNone(missing_package(other))

    def test_need_package_skips_and_fails_in_ci(self):
        need_package("twisted")
        for value, kind in (("", SkipTest), ("true", AssertionError)):
            with mock.patch.dict(os.environ, CI=value):
                error = self.assertRaises(kind, need_package, "no_such_package")
            self.assertEqual(str(error), "needs no_such_package: pip install -e '.[dev]'")

    def test_packages_of_a_program_are_needed_through_rocketd_too(self):
        name = "no_such_package"
        with mock.patch("tests.support.lacking.OPTIONAL_PACKAGES", {name}), mock.patch.dict(os.environ, CI=""):
            need_packages_of("import os\nfrom rocketd.client import aio\n")
            for line in (f"import {name}", f"    from {name}.sub import x", f"from rocketd.client.{name} import x"):
                self.assertRaises(SkipTest, need_packages_of, f"import os\n{line}\n")

    def test_optional_packages_are_those_of_the_extra_dev(self):
        config = configparser.ConfigParser()
        config.read(ROOT / "setup.cfg")
        extras = config["options.extras_require"]

        def names(extra):
            return set(re.findall(r"(?m)^([\w.-]+)", extras[extra].replace("\n    ", "\n")))

        within = re.search(r"(?m)^rocketd\[([\w,]+)\]$", extras["dev"])[1].split(",")
        dev = names("dev").union(*map(names, within))
        for package in OPTIONAL_PACKAGES:
            self.assertIn(DISTRIBUTIONS.get(package, package), dev)
            self.assertNotIn(DISTRIBUTIONS.get(package, package), names("test"))


class SkippedModuleTests(SynchronousTestCase):
    def run_module(self, ci):
        directory = Path(self.mktemp()).resolve()
        directory.mkdir()
        (directory / "conftest.py").write_text("from tests.conftest import *\n")
        (directory / "test_it.py").write_text(MODULE)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            str(ROOT / "setup.cfg"),
            "--rootdir",
            str(directory),
            directory,
        ]
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "CI": ci},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def test_module_without_its_package_is_skipped_with_reason(self):
        done = self.run_module("")
        self.assertIn("test_it.py needs redis: pip install -e '.[dev]'", done.stdout)
        self.assertIn("1 skipped", done.stdout)

    def test_module_without_its_package_fails_in_ci(self):
        done = self.run_module("true")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("1 error", done.stdout)
