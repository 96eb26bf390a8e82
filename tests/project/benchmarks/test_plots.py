"""The plots of the benchmarks: the bars are the ratios of the results, and the pictures in docs show them."""

import json
import re
from html import unescape
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from benchmarks import plots
from benchmarks.plots import Bar
from tests.support.lacking import need_package
from tests.support.places import ROOT

RESULTS = ROOT / "docs" / "pictures" / "benchmarks.json"
RUN = {
    "rows": [
        {
            "name": "send",
            "figures": {"cpu_us": {"ratio": 2.04}, "rate": {"ratio": 0.5}, "p50_us": {"ratio": 3.0}},
        },
        {"name": "lost", "figures": {"lost": {"ratio": None}}},
        {"name": "start to first send", "figures": {"start_cpu_s": {"ratio": 8.0}, "start_wall_s": {"ratio": 4.0}}},
        {"name": "memory", "figures": {"anonymous_mb": {"ratio": 31.9}}},
    ]
}


def texts(svg):
    """Return the texts of a picture. A label of several lines is joined."""
    return [unescape(text).strip() for text in re.findall(r"<text [^>]*>(.*?)</text>", svg, re.DOTALL)]


class BarTests(SynchronousTestCase):
    def test_bars_are_ratios_of_cpu_rate_memory_and_start(self):
        self.assertEqual(
            plots.bars(RUN),
            [
                Bar("start to first send", "CPU time", 8.0),
                Bar("start to first send", "time", 4.0),
                Bar("memory", "memory", 31.9),
                Bar("send", "CPU time", 2.04),
                Bar("send", "rate", 0.5),
            ],
        )

    def test_labels_have_two_digits(self):
        labels = [Bar("send", "rate", ratio).label for ratio in (0.356, 0.5, 1.03, 2.44, 31.93)]
        self.assertEqual(labels, ["0.36", "0.5", "1.0", "2.4", "32"])


class PictureTests(SynchronousTestCase):
    def test_pictures_in_docs_show_the_results_beside_them(self):
        shown = plots.bars(json.loads(RESULTS.read_text()))
        self.assertGreater(len(shown), 20)
        for name in plots.THEMES:
            svg = (RESULTS.parent / f"benchmarks-{name}.svg").read_text()
            found = texts(svg)
            for bar in shown:
                self.assertIn(bar.label, found)
                self.assertIn(bar.row.split()[0], " ".join(found))
            labels = [text for text in found if re.fullmatch(r"\d+(\.\d+)?", text)]
            ticks = ["0.25", "0.5", "1", "2", "4", "8", "16", "32"]
            self.assertEqual(sorted(labels), sorted([bar.label for bar in shown] + 2 * ticks))

    def test_results_in_docs_are_those_of_the_performance_page(self):
        page = (ROOT / "docs" / "performance.md").read_text()
        run = json.loads(RESULTS.read_text())
        self.assertIn(f"`{run['machine']['commit']}`", page)
        for row in run["rows"]:
            self.assertIn(f"| {row['name']}", page)

    def test_two_drawings_are_equal(self):
        need_package("matplotlib")
        results = Path(self.mktemp())
        results.write_text(json.dumps(RUN))
        first, second = Path(self.mktemp()), Path(self.mktemp())
        for directory in (first, second):
            self.assertEqual(plots.main([str(results), "--dir", str(directory)]), 0)
        for name in plots.THEMES:
            one, other = ((directory / f"benchmarks-{name}.svg").read_bytes() for directory in (first, second))
            self.assertEqual(one, other)
            self.assertIn("32", texts(one.decode()))

    def test_results_of_one_side_are_refused(self):
        results = Path(self.mktemp())
        results.write_text(json.dumps({"rows": []}))
        error = self.assertRaises(SystemExit, plots.main, [str(results)])
        self.assertEqual(error.code, 2)
