"""The pages for operators: their commands, options, settings and figures exist."""

import re
import shlex
from pathlib import Path

import click
import yaml
from twisted.trial.unittest import SynchronousTestCase

from rocketd.broker.access.access_control import make_access_control
from rocketd.broker.base.settings import BrokerSettings
from rocketd.common.command_line.commands import LazyGroup
from rocketd.common.settings import properties_file
from rocketd.tools.cli import ROCKETD
from tests.support.places import ROOT

HOWTO = ROOT / "docs" / "howto"
PAGES = [HOWTO / name for name in ("production.md", "doctor.md", "containers.md", "migrate-from-apache.md")]
PRODUCTION = PAGES[0].read_text()
PERFORMANCE = (ROOT / "docs" / "performance.md").read_text()


def commands_of(text):
    """Return the words of each rocketd command in blocks and pieces of code."""
    blocks = re.findall(r"(?ms)^```(?:sh)?\n(.*?)^```$", text)
    lines = [line for block in blocks for line in block.splitlines()]
    pieces = re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))
    for code in (*lines, *pieces):
        command = code.partition(" -- ")[2] if code.startswith("kubectl exec") else code
        if command.startswith("rocketd "):
            yield shlex.split(command)[1:]


def resolved(words):
    """Return the command that words name, and the words behind its name."""
    found, rest = ROCKETD, list(words)
    while isinstance(found, LazyGroup) and rest:
        name = rest.pop(0)
        found = found.get_command(click.Context(found), name)
        assert found is not None, (name, words)
    return found, rest


def option_names(command):
    return {name for param in command.get_params(click.Context(command)) for name in param.opts}


class CommandTests(SynchronousTestCase):
    def test_commands_and_options_of_the_pages_exist(self):
        count = 0
        for page in PAGES:
            for words in commands_of(page.read_text()):
                command, rest = resolved(words)
                for word in rest:
                    if word.startswith("-"):
                        self.assertIn(word.partition("=")[0], option_names(command), (page.name, words))
                count += 1
        self.assertGreater(count, 15)

    def test_unknown_command_or_option_would_be_noticed(self):
        (words,) = commands_of("```\nrocketd broker drain --nonsense\n```")
        command, rest = resolved(words)
        self.assertNotIn(rest[0], option_names(command))
        self.assertRaises(AssertionError, resolved, ["broker", "nonsense"])


class FactTests(SynchronousTestCase):
    def test_settings_and_accounts_to_begin_with_are_accepted_by_a_broker(self):
        (settings,) = re.findall(r"(?ms)^```properties\n(.*?)^```$", PRODUCTION)
        (accounts,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", PRODUCTION)
        directory = Path(self.mktemp())
        directory.mkdir()
        (directory / "plain_acl.yml").write_text(accounts)
        (file,) = re.findall(r"(?m)^rocketmq.acl.plain.file=(\S+)$", settings)
        self.assertIn(f"`{file}`", PRODUCTION)
        settings = settings.replace(file, str(directory.resolve() / "plain_acl.yml"))
        (directory / "broker.conf").write_text(settings)
        loaded, warnings = BrokerSettings.load(str(directory / "broker.conf"))
        self.assertEqual(warnings, [])
        access = make_access_control(loaded.broker, lambda: 0)
        (account,) = yaml.safe_load(accounts)["accounts"]
        for key in ("accessKey", "secretKey"):
            self.assertIn(f"`{key}: {account[key]}`", PRODUCTION)
        self.assertIsNotNone(access)

    def test_settings_exist(self):
        known = BrokerSettings.by_name()
        blocks = re.findall(r"(?ms)^```properties\n(.*?)^```$", PRODUCTION)
        keys = {entry.key for block in blocks for entry in properties_file.parse(block)}
        pieces = re.findall(r"`([a-z]\w*[A-Z]\w*)(?:=\w+)?`", PRODUCTION)
        self.assertGreater(len(keys), 5)
        for key in keys | set(pieces):
            self.assertIn(key, known)

    def test_metrics_are_on_their_page(self):
        metrics = (HOWTO / "metrics.md").read_text()
        names = re.findall(r"`(rocke\w+?_\w+)`", PRODUCTION)
        self.assertGreater(len(names), 5)
        for name in names:
            self.assertIn(name, metrics)

    def test_figures_of_capacity_are_those_of_the_performance_page(self):
        rows = re.findall(r"(?m)^\| .* \| ([\d,.]+)(?: \w+)? \|$", PRODUCTION.partition("## Capacity")[2])
        self.assertEqual(len(rows), 11)
        for figure in rows:
            self.assertRegex(PERFORMANCE, rf"(?m)^\|.*\| +{re.escape(figure)} +\|")

    def test_figures_of_the_readme_are_in_one_row_of_the_performance_page(self):
        table = (ROOT / "README.md").read_text().partition("## Why")[2].partition("\n\n<picture>")[0]
        rows = re.findall(r"(?m)^\| .* \| ([\d,.]+)[^|]* \| ([\d,.]+)[^|]* \|$", table)
        self.assertEqual(len(rows), 5)
        for figures in rows:
            ours, theirs = map(re.escape, figures)
            row = re.search(rf"(?m)^\|.*\| +{ours} +\|(?:.*\|)? +{theirs} +\|", PERFORMANCE)
            self.assertIsNotNone(row, figures)
