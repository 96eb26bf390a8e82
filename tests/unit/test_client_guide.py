"""The guide of the Python client: its tables and trees are those of the code, its programs are whole."""

import ast
import re
from dataclasses import MISSING, fields
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

from twisted.trial.unittest import SynchronousTestCase

from rocketd.client import errors
from rocketd.client.config import ClientConfig
from rocketd.client.consumer.flow_control import FlowLimits
from rocketd.client.consumer.member_options import MemberOptions
from rocketd.client.consumer.options import ConsumerOptions, LitePullOptions
from rocketd.client.producer.options import ProducerOptions
from rocketd.client.pull_faces import PullFace

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "python-client.md"


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
    """The errors below one that the errors module declares, in its order."""
    below = [
        found
        for found in vars(errors).values()
        if isinstance(found, type) and found.__bases__[0] is error and found.__module__ == errors.__name__
    ]
    return f"{'    ' * depth}{error.__name__}\n" + "".join(error_tree(each, depth + 1) for each in below)


class GuideTests(SynchronousTestCase):
    def setUp(self):
        self.text = GUIDE.read_text()
        self.blocks = re.findall(r"^```(\w+)\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)

    def test_options(self):
        # That one has some of the options that all consumers have.
        of_pull = {field.name for field in fields(PullFace)} & {field.name for field in fields(MemberOptions)}
        self.assertGreater(len(of_pull), 4)
        classes = (ClientConfig, ProducerOptions, ConsumerOptions, FlowLimits, LitePullOptions)
        for options, names in (*((each, None) for each in classes), (MemberOptions, of_pull)):
            table = option_table(options, names)
            self.assertIn(table, self.text, f"{GUIDE.name} should have of {options.__name__}:\n{table}")

    def test_errors(self):
        tree = error_tree(errors.RocketMQError)
        self.assertIn(("tree", tree), self.blocks, f"{GUIDE.name} should have:\n{tree}")

    def test_errors_in_the_text_exist(self):
        for name in re.findall(r"`(\w+Error)`", self.text):
            self.assertTrue(hasattr(errors, name), name)

    def test_every_program_is_followed_by_what_it_prints(self):
        kinds = [kind for kind, _ in self.blocks if kind not in ("sh", "tree")]
        self.assertGreater(len(kinds), 10)
        self.assertEqual(kinds, ["python", "text"] * (len(kinds) // 2))

    def test_programs_are_formed_well(self):
        for kind, source in self.blocks:
            if kind == "python":
                compile(source, "block", "exec")
                self.assertLessEqual(max(map(len, source.splitlines())), 120)
