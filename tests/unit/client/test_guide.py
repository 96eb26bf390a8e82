"""The guide of the Python client: its tables and trees are those of the code, its programs are whole."""

import ast
import re
from contextlib import redirect_stdout
from dataclasses import MISSING, fields
from inspect import getsource
from io import StringIO
from itertools import pairwise
from textwrap import dedent

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client import errors
from rocketd.client.consumer.options.flow_limits import FlowLimits
from rocketd.client.consumer.options.kind_options import ConsumerOptions, LitePullOptions
from rocketd.client.consumer.options.member_options import MemberOptions
from rocketd.client.faces.pull import PullFace
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.settings.config import ClientConfig
from rocketd.client.sync import Admin
from rocketd.common.settings.declaration import settings_of
from rocketd.protocol import errors as protocol_errors
from rocketd.remoting.settings import NettyClientConfig, TlsConfig
from rocketd.tools.cli import main
from tests.support.client_guide import PAGES, guide_text


def option_texts(options):
    """The text below each attribute of a class and of those it inherits from, by name."""
    texts = {}
    for kind in reversed(options.__mro__[:-1]):
        body = ast.parse(dedent(getsource(kind))).body[0].body
        for declared, text in pairwise(body):
            if isinstance(declared, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[declared.target.id] = " ".join(text.value.value.split())
    return texts


def default_text(field):
    if field.default is MISSING:
        value = field.default_factory()
        return f"`{type(value).__name__}()`"
    return f"`{getattr(field.default, 'value', field.default)!r}`"


def option_table(options, names=None):
    """The table of a class of options, as the guide has it; of all of them unless there are ``names``."""
    texts = option_texts(options)
    rows = ["| option | default | |", "| --- | --- | --- |"]
    for field in fields(options):
        if names is not None and field.name not in names:
            continue
        text = texts[field.name].replace("``", "`").replace("|", r"\|")
        rows.append(f"| `{field.name}` | {default_text(field)} | {text} |")
    return "".join(f"{row}\n" for row in rows)


def error_tree(error, depth=0):
    """The errors below one that the errors module has, in the order of declaration; those of both clients come first."""
    declared = [*vars(protocol_errors).values(), *vars(errors).values()]
    public = dict.fromkeys(found for found in declared if getattr(found, "__name__", "") in errors.__all__)
    below = [found for found in public if isinstance(found, type) and found.__bases__[0] is error]
    return f"{'    ' * depth}{error.__name__}\n" + "".join(error_tree(each, depth + 1) for each in below)


class GuideTests(SynchronousTestCase):
    def setUp(self):
        self.text = guide_text()
        self.blocks = re.findall(r"^```(\w+)\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)

    def test_pages_are_all_of_the_guide(self):
        directory = PAGES[0].parent
        found = {*directory.glob("*client*.md"), directory / "mqadmin.md"} - {directory / "from-other-clients.md"}
        self.assertEqual(found, set(PAGES))

    def test_methods_beside_commands_of_mqadmin_exist(self):
        named = {name for _, methods in self.rows_of_mqadmin() for name in re.findall(r"`(\w+)`", methods)}
        known = {name for name, value in vars(Admin).items() if callable(value) and not name.startswith("_")}
        of_queues = {"fetch_publish_queues", "fetch_subscribe_queues", "max_offset", "min_offset"}
        self.assertEqual(known - named, of_queues | {"search_offset", "earliest_message_time", "ask"})
        self.assertEqual(named - known, set())

    def test_commands_beside_commands_of_mqadmin_exist(self):
        named = {name for commands, _ in self.rows_of_mqadmin() for name in re.findall(r"`([^`]+)`", commands)}
        self.assertGreater(len(named), 20)
        for name in named:
            with redirect_stdout(StringIO()):
                self.assertEqual(main([*name.split(), "--help"]), 0, name)

    def rows_of_mqadmin(self):
        """Return the commands of rocketd and the methods of Admin in each row of the table."""
        table = self.text.partition("| mqadmin 4.9.7 |")[2].partition("\n\n")[0]
        return [row.strip("| ").split(" | ")[1:] for row in table.splitlines()[2:]]

    def test_options(self):
        # That one has some of the options that all consumers have.
        of_pull = {field.name for field in fields(PullFace)} & {field.name for field in fields(MemberOptions)}
        self.assertGreater(len(of_pull), 4)
        classes = (ClientConfig, ProducerOptions, ConsumerOptions, FlowLimits, LitePullOptions)
        for options, names in (*((each, None) for each in classes), (MemberOptions, of_pull)):
            table = option_table(options, names)
            self.assertIn(table, self.text, f"the guide should have of {options.__name__}:\n{table}")

    def test_options_of_connections_have_texts_of_settings(self):
        for group in (NettyClientConfig, TlsConfig):
            texts = {setting.attribute: setting.doc for setting in settings_of(group)}
            section = self.text.partition(f"## {group.__name__}\n")[2].partition("\n## ")[0]
            rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", section, re.MULTILINE)
            self.assertGreater(len(rows), 5)
            self.assertEqual([(name, texts[name]) for name, _ in rows], rows)

    def test_errors(self):
        tree = error_tree(errors.RocketMQError)
        self.assertIn(("tree", tree), self.blocks, f"the guide should have:\n{tree}")

    def test_errors_in_the_text_exist(self):
        for name in re.findall(r"`(\w+Error)`", self.text):
            self.assertTrue(hasattr(errors, name), name)

    def test_every_program_is_followed_by_its_output(self):
        kinds = [kind for kind, _ in self.blocks if kind not in ("sh", "tree")]
        self.assertGreater(len(kinds), 10)
        self.assertEqual(kinds, ["python", "text"] * (len(kinds) // 2))

    def test_programs_are_formed_well(self):
        for kind, source in self.blocks:
            if kind == "python":
                compile(source, "block", "exec")
                self.assertLessEqual(max(map(len, source.splitlines())), 120)
