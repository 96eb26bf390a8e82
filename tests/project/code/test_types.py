"""`Any` switches the type checker off: the places that have it are counted, and may only get fewer."""

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.lacking import need_package
from tests.support.places import ROOT

SECONDS = 60

MAX_FILES = 72
"""Files in ruff.toml's list of exceptions from ANN401. Never raise it."""

MAX_PARAMETERS = 116
"""Parameters of rocketd/ that are annotated with a plain Any. Never raise it."""

SLACK = 10
"""By how much a count may be below its ceiling before the ceiling must be lowered."""

COLLABORATORS = ("broker", "name_server", "reactor", "instance", "producer", "consumer", "store")
"""Names of parameters that stand for parts of our own."""

DUCKS = {"rocketd/common/event_loop/monotonic_reactor.py": "reactor"}
"""Module: a parameter that may be any object, here a reactor with a replaced method, which no interface allows."""


def exceptions() -> list[str]:
    settings = tomllib.loads((ROOT / "ruff.toml").read_text())["lint"]["per-file-ignores"]
    return sorted(path for path, rules in settings.items() if "ANN401" in rules)


def files_with_any() -> list[str]:
    """The files in which ruff finds `Any`, listed or not."""
    options = (
        "--isolated",
        "--no-cache",
        "--select=ANN401",
        "--output-format=json",
        "--extend-exclude=tests,benchmarks",
    )
    star = "--config=lint.flake8-annotations.allow-star-arg-any=true"
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *options, star, "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return sorted({str(Path(found["filename"]).relative_to(ROOT)) for found in json.loads(done.stdout)})


def any_parameters() -> Iterator[tuple[str, str]]:
    """Path and name of each parameter of rocketd/ that is annotated with a plain Any."""
    for path in sorted((ROOT / "rocketd").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = node.args
                for argument in (
                    *arguments.posonlyargs,
                    *arguments.args,
                    *arguments.kwonlyargs,
                    *filter(None, (arguments.vararg, arguments.kwarg)),
                ):
                    if isinstance(argument.annotation, ast.Name) and argument.annotation.id == "Any":
                        yield str(path.relative_to(ROOT)), argument.arg


class AnyTests(SynchronousTestCase):
    def test_rule_against_any_is_on(self):
        lint = tomllib.loads((ROOT / "ruff.toml").read_text())["lint"]
        self.assertIn("ANN", lint["select"])
        self.assertNotIn("ANN401", lint["ignore"])

    def test_exceptions_are_the_files_with_any(self):
        need_package("ruff")
        self.assertEqual(exceptions(), files_with_any())

    def test_exceptions_do_not_become_more(self):
        self.assertLessEqual(len(exceptions()), MAX_FILES, "give the parameter a type")
        self.assertLess(MAX_FILES - len(exceptions()), SLACK, "lower MAX_FILES")

    def test_any_parameters_do_not_become_more(self):
        count = len(list(any_parameters()))
        self.assertLessEqual(count, MAX_PARAMETERS, "give the parameter a type")
        self.assertLess(MAX_PARAMETERS - count, SLACK, "lower MAX_PARAMETERS")

    def test_collaborators_have_types(self):
        untyped = [(path, name) for path, name in any_parameters() if name in COLLABORATORS]
        self.assertEqual(untyped, list(DUCKS.items()))
