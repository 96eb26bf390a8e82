"""The catalogues of refusals, their use in the code, and the pages made of them."""

import ast
import re
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import rocketd
from rocketd.broker.base import problems as broker_problems
from rocketd.remoting import problems as remoting_problems
from rocketd.remoting.problems import CATALOGUE, Problem
from rocketd.remoting.wire.codes import ResponseCode
from rocketd.tools.gen_docs import errors as gen_errors_docs
from tests.support.places import ROOT

SOURCES = Path(rocketd.__file__).resolve().parent
PAGE = ROOT / "docs" / "errors.md"
PLACEHOLDER = re.compile(r"\{(\w+)\}")
MODULES = (broker_problems, remoting_problems)
BUSY_PREFIXES = ("[OVERLOAD]", "[TIMEOUT_CLEAN_QUEUE]", "[PCBUSY_CLEAN_QUEUE]", "[REJECTREQUEST]")


def declared():
    """Yield the name in its module and the problem."""
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, Problem):
                yield name, value


def placeholders(problem):
    return set(PLACEHOLDER.findall(problem.remark + problem.cause + problem.advice + (problem.setting or "")))


@cache
def uses():
    """List place, name of the problem, and the keywords of every ``problems.NAME.error(...)`` in rocketd."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("error", "text")
                and isinstance(node.func.value, ast.Attribute)
                and isinstance(node.func.value.value, ast.Name)
                and node.func.value.value.id == "problems"
            ):
                keywords = {word.arg for word in node.keywords}
                found.append((f"{path.name}:{node.lineno}", node.func.value.attr, keywords))
    return found


class ProblemTests(SynchronousTestCase):
    def test_problem_error_has_code_and_remark(self):
        error = remoting_problems.POOL_FULL.error(pool="send", queued=5, limit=4, queued_bytes=7, limit_bytes=6)
        self.assertEqual(error.code, ResponseCode.SYSTEM_BUSY)
        self.assertTrue(
            error.remark.startswith("[OVERLOAD]system busy, start flow control for a while; cause: the send")
        )
        self.assertIn("holds 5 of at most 4 requests and 7 of 6 bytes", error.remark)
        self.assertTrue(error.remark.endswith("[pool-full]"))

    def test_unknown_code_begins_as_apaches(self):
        remark = remoting_problems.CODE_NOT_SUPPORTED.text(code=9001)
        self.assertTrue(remark.startswith(" request type 9001 not supported"), remark)

    def test_braces_in_values_are_kept(self):
        self.assertIn("{x}", remoting_problems.CODE_NOT_SUPPORTED.text(code="{x}"))

    def test_repeated_problem_id_is_refused(self):
        known = remoting_problems.POOL_FULL
        with self.assertRaises(ValueError):
            Problem(known.id, known.code, known.remark, known.cause, known.advice)
        self.assertIs(CATALOGUE[known.id], known)

    def test_busy_remarks_keep_a_prefix_of_apaches(self):
        for _, problem in declared():
            if problem.code == ResponseCode.SYSTEM_BUSY:
                self.assertTrue(problem.remark.startswith(BUSY_PREFIXES), problem.id)

    def test_every_problem_is_in_the_catalogue(self):
        self.assertEqual({problem.id: problem for _, problem in declared()}, CATALOGUE)


class UseTests(SynchronousTestCase):
    def test_uses_give_values_of_placeholders(self):
        by_name = dict(declared())
        found = uses()
        self.assertGreater(len(found), 10)
        for place, name, keywords in found:
            self.assertEqual(keywords, placeholders(by_name[name]), f"{name} at {place}")

    def test_every_problem_is_used(self):
        self.assertEqual({name for name, _ in declared()} - {name for _, name, _ in uses()}, set())


class PageTests(SynchronousTestCase):
    def test_page_is_up_to_date(self):
        command = "python -m rocketd.tools.gen_docs.errors > docs/errors.md"
        self.assertEqual(gen_errors_docs.page(), PAGE.read_text(), f"regenerate it: {command}")

    def test_page_has_section_with_cause_and_setting_per_id(self):
        sections = dict(re.findall(r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", gen_errors_docs.page()))
        self.assertEqual(set(sections), set(CATALOGUE))
        section = sections["topic-not-exist"]
        for part in ("17 TOPIC_NOT_EXIST", "`autoCreateTopicEnable`", "topic[<topic>] not exist", "from the broker"):
            self.assertIn(part, section)

    def test_index_links_every_section(self):
        index = gen_errors_docs.page().partition("\n## ")[0]
        self.assertEqual(set(re.findall(r"^\| \[(\S+)\]\(#\1\)", index, re.MULTILINE)), set(CATALOGUE))
