"""The README: its two commands are one line each, and what it and the other pages point to is there."""

import re
import shlex
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")))


def anchor(heading):
    """The name that a heading gets on the usual forges."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class ReadmeTests(SynchronousTestCase):
    def setUp(self):
        self.text = (ROOT / "README.md").read_text()
        self.blocks = re.findall(r"^```sh\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)

    def test_two_commands_of_one_line(self):
        self.assertEqual(len(self.blocks), 2)
        for block in self.blocks:
            self.assertEqual(block.count("\n"), 1)
            self.assertTrue(block.startswith("python3 -m venv .venv && .venv/bin/pip install "), block)

    def test_the_first_ends_with_a_consumed_message(self):
        first = self.blocks[0]
        for part in ("rocketd up", "rocketd produce Hello 'it works'", "rocketd consume Hello --count 1", "kill $!"):
            self.assertIn(part, first)

    def test_the_second_runs_every_check(self):
        commands = [shlex.split(part) for part in self.blocks[1].split("&&")]
        self.assertEqual(
            [" ".join(words).removeprefix(".venv/bin/") for words in commands[2:]],
            ["ruff check", "ruff format --check", "mypy", "lint-imports", "pytest"],
        )
        self.assertIn("testpaths = tests\n", (ROOT / "setup.cfg").read_text())

    def test_ci_takes_both_from_here(self):
        script = (ROOT / ".ci" / "run").read_text()
        for number in (1, 2):
            self.assertIn(f"$(command_of_readme {number})", script)
        self.assertNotIn("rocketd up", script)

    def test_files_that_commands_name_are_there(self):
        for path in re.findall(r"--config (\S+)", self.text):
            self.assertTrue((ROOT / path).is_file(), path)

    def test_the_layout_is_the_documented_one(self):
        for name in ("setup.cfg", "pyproject.toml"):
            self.assertTrue((ROOT / name).is_file(), name)
        for name in ("twisted/plugins", "rocketd", "tests/unit", "tests/servers", "tests/interop", "etc", "docs"):
            self.assertTrue((ROOT / name).is_dir(), name)
        self.assertFalse((ROOT / "twisted" / "__init__.py").exists())


class LinkTests(SynchronousTestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            text = (ROOT / page).read_text()
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if target.startswith(("http://", "https://")):
                    continue
                path, _, fragment = target.partition("#")
                found = (ROOT / page).parent / path if path else ROOT / page
                self.assertTrue(found.exists(), f"{page}: {target}")
                if fragment:
                    headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
                    self.assertIn(fragment, map(anchor, headings), f"{page}: {target}")
