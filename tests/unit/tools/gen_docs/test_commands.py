"""The page of commands, generated from their declarations."""

import re

import click
from twisted.trial.unittest import SynchronousTestCase

from rocketd.tools.cli import ROCKETD
from rocketd.tools.gen_docs import commands as gen_commands_docs
from tests.support.lacking import need_package
from tests.support.places import ROOT

COMMAND = "python -m rocketd.tools.gen_docs.commands > docs/commands.md"


class CommandsPageTests(SynchronousTestCase):
    def setUp(self):
        for package in ("pyspark", "pyarrow", "numpy"):  # of the commands of `rocketd spark`
            need_package(package)
        self.page = gen_commands_docs.page()
        self.sections = dict(re.findall(r"(?ms)^## (rocketd [^\n]+)\n(.*?)(?=^## |\Z)", self.page))

    def test_page_is_up_to_date(self):
        self.assertEqual(self.page, (ROOT / "docs" / "commands.md").read_text(), f"regenerate it: {COMMAND}")

    def test_every_command_has_a_section_and_a_link(self):
        context = click.Context(ROCKETD)
        for name in ROCKETD.list_commands(context):
            self.assertTrue(any(f"{path} ".startswith(f"rocketd {name} ") for path in self.sections), name)
        links = dict(re.findall(r"(?m)^\| \[(.*?)\]\(#(.*?)\) \|", self.page))
        self.assertEqual(list(links), list(self.sections))
        self.assertEqual(links["rocketd topic create"], "rocketd-topic-create")

    def test_section_has_usage_own_options_and_names_of_connection_options(self):
        section = self.sections["rocketd topic create"]
        self.assertIn("\nrocketd topic create [options] TOPIC\n", section)
        self.assertIn("| `--queues N` | Number of queues at each broker.", section)
        self.assertNotIn("| `-n, --namesrv", section)
        self.assertIn("Also `--namesrv`, `--context`,", section)
        self.assertIn("| `-n, --namesrv HOST:PORT` |", self.page.partition("## rocketd ")[0])
        self.assertNotIn("--help", "".join(self.sections.values()))
