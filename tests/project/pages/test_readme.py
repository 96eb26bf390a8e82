"""The README: its two commands are one line each, and links of it and of the other pages lead to files."""

import re
import shlex

from twisted.trial.unittest import SynchronousTestCase

from tests.support.places import ROOT

PAGES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")),
)


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

    def test_first_command_is_rocketd_try(self):
        self.assertTrue(self.blocks[0].endswith(".venv/bin/rocketd try\n"), self.blocks[0])

    def test_second_command_runs_pytest_alone(self):
        commands = [shlex.split(part) for part in self.blocks[1].split("&&")]
        self.assertEqual(commands[1:], [[".venv/bin/pip", "install", "-q", "-e", ".[test]"], [".venv/bin/pytest"]])

    def test_ci_runs_both_commands_and_quick_sessions(self):
        script = (ROOT / ".ci" / "run").read_text()
        for number, name in ((1, "first"), (2, "second")):
            self.assertIn(f"{name}=$(command_of_readme {number})", script)
            self.assertRegex(script, rf"(?m)^part {name} .*\${name}\b")
        sessions = " ".join(re.findall(r"nox --no-venv -s ([\w ]+)", script)).split()
        self.assertEqual(sessions, ["lint", "types", "docs", "dist", "compiled", "smoke"])
        self.assertNotIn("rocketd up", script)

    def test_files_named_by_commands_exist(self):
        for path in re.findall(r"--config (\S+)", self.text):
            self.assertTrue((ROOT / path).is_file(), path)

    def test_layout_is_the_documented_one(self):
        for name in ("setup.cfg", "pyproject.toml"):
            self.assertTrue((ROOT / name).is_file(), name)
        for name in ("twisted/plugins", "rocketd", "tests/unit", "tests/servers", "tests/interop", "etc", "docs"):
            self.assertTrue((ROOT / name).is_dir(), name)
        self.assertFalse((ROOT / "twisted" / "__init__.py").exists())


class IndexTests(SynchronousTestCase):
    def test_index_of_documents_has_four_headings_and_every_guide(self):
        text = (ROOT / "docs" / "README.md").read_text()
        headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
        self.assertEqual(headings, ["Tutorial", "How-to guides", "Reference", "Explanation"])
        pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/howto/*.md"), *ROOT.glob("docs/protocol/*.md")]
        for page in [*pages, *ROOT.glob("docs/formats/*.md")]:
            if page.name != "README.md":
                self.assertIn(f"]({page.relative_to(ROOT / 'docs')})", text)


class LinkTests(SynchronousTestCase):
    def test_links_lead_somewhere(self):
        for page in PAGES:
            text = (ROOT / page).read_text()
            for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r' src(?:set)?="([^"]+)"', text):
                if target.startswith(("http://", "https://")):
                    continue
                path, _, fragment = target.partition("#")
                found = (ROOT / page).parent / path if path else ROOT / page
                self.assertTrue(found.exists(), f"{page}: {target}")
                if fragment:
                    headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
                    self.assertIn(fragment, map(anchor, headings), f"{page}: {target}")


class ChangelogTests(SynchronousTestCase):
    def test_entries_have_at_most_three_lines_of_125_characters(self):
        text = (ROOT / "CHANGELOG.md").read_text()
        entries = re.findall(r"(?m)^- .*\n(?:  .*\n)*", text)
        self.assertGreater(len(entries), 50)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        self.assertEqual(len(entries), sum(line.startswith("- ") for line in lines))
        for entry in entries:
            self.assertLessEqual(entry.count("\n"), 3, entry)
        self.assertEqual([line for line in lines if len(line) > 125], [])
