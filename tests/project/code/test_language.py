"""The language of texts: six patterns of the dialect are counted in each place, and may only get rarer.

The texts are docstrings and longer strings of the packages (errors, log lines, options, settings), names and docstrings of
tests, and the prose of pages. The goals are the counts of h11, magic-wormhole and structlog. CONTRIBUTING tells how texts
are written.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.places import ROOT

WORDS_OF_A_TEXT = 4
"""A shorter string is a name or a value."""

PATTERNS = {
    "what": r"what(ever)?",
    "that": r"that|which",
    "where": r"where (it|there|they|he|she|this|that|one|nothing|somebody|nobody)",
    "is no": r"(is|are|was|were|be|as) no(?! longer)",
    "somebody": r"somebody|nobody|everybody",
    "own": r"(of|with) (its|their) own",
}
"""Short name of each pattern, and its regular expression. "Where it" stands for "if it"; "is no X" for "is not an X"."""

GOALS = {"what": 1.9, "that": 18.4, "where": 0.2, "is no": 0.4, "somebody": 0.0, "own": 0.6}
"""Uses per 1,000 words in the best of projects; a ceiling at or below its goal need not be lowered."""

CEILINGS = {
    "rocketd/acl": (1.0, 9.0, 0.2, 0.4, 0.0, 0.6),
    "rocketd/broker": (1.2, 10.8, 0.2, 0.4, 0.0, 0.6),
    "rocketd/client": (1.0, 12.0, 0.2, 0.4, 0.0, 0.6),
    "rocketd/common": (1.0, 12.0, 0.2, 0.4, 0.0, 0.6),
    "rocketd/faststream": (1.0, 12.0, 0.2, 0.4, 0.0, 0.6),
    "rocketd/filter": (1.0, 9.0, 0.2, 0.4, 0.0, 0.6),
    "rocketd/namesrv": (1.0, 10.7, 0.2, 0.4, 0.0, 0.6),
    "rocketd/protocol": (1.0, 12.0, 0.2, 0.4, 0.0, 0.6),
    "rocketd/remoting": (1.0, 12.0, 0.2, 0.4, 0.0, 0.6),
    "rocketd/store": (1.0, 12.0, 0.2, 0.4, 0.0, 0.6),
    "rocketd/testing": (1.0, 9.0, 0.2, 0.4, 0.0, 0.6),
    "rocketd/tools": (1.9, 13.7, 0.2, 0.4, 0.0, 0.6),
    "tests/unit": (1.9, 18.4, 0.2, 0.4, 0.2, 0.6),
}
"""Place: the most uses of each pattern per 1,000 words, in the order of PATTERNS. Never raise one.

A place without a line has the goals as ceilings.
"""


def slack(ceiling: float) -> float:
    """By how much a count may be below its ceiling before the ceiling must be lowered."""
    return max(1.0, ceiling / 10)


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z']+", text)


def texts_of_module(source: bytes | str) -> Iterator[str]:
    """The docstrings and longer strings of a module, and the names of its tests as words."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) if len(words(text)) >= WORDS_OF_A_TEXT:
                yield text
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield name.removeprefix("test_").replace("_", " ")


def prose(page: str) -> str:
    """A page without its blocks and pieces of code."""
    return re.sub(r"`[^`]*`", "x", re.sub(r"```.*?```", "", page, flags=re.DOTALL))


def uses(text: str) -> dict[str, float]:
    """Uses of each pattern per 1,000 words."""
    flat = " ".join(text.split())
    return {
        name: 1000 * sum(1 for _ in re.finditer(rf"\b({pattern})\b", flat, re.IGNORECASE)) / len(words(text))
        for name, pattern in PATTERNS.items()
    }


def places() -> dict[str, str]:
    """Each package, folder of tests and folder of pages, with its text, without this module, which has the patterns."""
    found = {}
    folders = {path.parent for path in (*ROOT.glob("rocketd/*/*.py"), *ROOT.glob("tests/*/*.py"))}
    for folder in folders:
        sources = sorted(set(folder.rglob("*.py")) - {Path(__file__)})
        found[name_of(folder)] = "\n".join(text for source in sources for text in texts_of_module(source.read_bytes()))
    for folder in {page.parent for page in ROOT.glob("docs/**/*.md")}:
        found[name_of(folder)] = "\n".join(prose(page.read_text()) for page in sorted(folder.glob("*.md")))
    for page in ROOT.glob("*.md"):
        found[page.name] = prose(page.read_text())
    return found


def name_of(folder: Path) -> str:
    return folder.relative_to(ROOT).as_posix()


WORDS_OF_CONTRIBUTORS = r"(the|three|other|blocking|asyncio|twisted|each|all) faces?"
"""Words that only the pages about the inside define. Guides say "the blocking client"."""


class LanguageTests(SynchronousTestCase):
    def test_guides_have_no_words_of_contributors(self):
        for page in (ROOT / "README.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))):
            found = re.search(rf"\b{WORDS_OF_CONTRIBUTORS}\b", page.read_text(), re.IGNORECASE)
            self.assertIsNone(found, page.name)

    def test_texts_stay_below_ceilings(self):
        complaints = []
        found = places()
        self.assertLessEqual(set(CEILINGS), set(found))
        for place, text in sorted(found.items()):
            ceilings = CEILINGS.get(place, tuple(GOALS.values()))
            for (pattern, count), ceiling in zip(uses(text).items(), ceilings, strict=True):
                line = f'{place}: "{pattern}" {count:.1f} per 1,000 words'
                if count > ceiling:
                    complaints.append(f"{line}, ceiling {ceiling}: rewrite some sentences")
                elif ceiling > GOALS[pattern] and count < ceiling - slack(ceiling):
                    complaints.append(f"{line}: lower the ceiling to {max(GOALS[pattern], count + 0.1):.1f}")
        self.assertEqual(complaints, [])

    def test_uses_dialect_text_counts_every_pattern(self):
        text = "What is no frame, whatever\n it is, which somebody has of its own, where\nit is so: that"
        counts = {name: round(count * len(words(text)) / 1000) for name, count in uses(text).items()}
        self.assertEqual(counts, {"what": 2, "that": 2, "where": 1, "is no": 1, "somebody": 1, "own": 1})

    def test_texts_of_module_are_docstrings_long_strings_and_test_names(self):
        source = '''"""Head of a small module."""
A = "a short one"
"""Of A, which is short."""
def test_a_name():
    raise ValueError(f"bad value of the limit: {A}")
'''
        self.assertEqual(
            set(texts_of_module(source)),
            {"Head of a small module.", "Of A, which is short.", "a name", "bad value of the limit: "},
        )

    def test_prose_of_page_has_no_code(self):
        self.assertEqual(prose("One `where it is`.\n```sh\nwhat\n```\nTwo."), "One x.\n\nTwo.")
