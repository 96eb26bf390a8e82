"""``python -m benchmarks plot RESULTS.json``: how many times better than Apache, as two pictures: light and dark.

A bar begins at 1, a draw: to the right rocketd is better, to the left Apache is. The scale is logarithmic. The pictures
depend on the results alone, so that they change only with them. Needs the extra ``docs``.

Exit code: 0, or 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import ANONYMOUS, CLIENT_CPU, CPU, RATE, START_CPU, START_WALL, Figure

NAMES = {
    CPU: "CPU time",
    CLIENT_CPU: "CPU time",
    RATE: "rate",
    ANONYMOUS: "memory",
    START_CPU: "CPU time",
    START_WALL: "time",
}
"""The values shown, by their names in the legend."""
DIRECTORY = Path(__file__).resolve().parent.parent / "docs" / "pictures"


@dataclass(frozen=True)
class Bar:
    """A value of a row: how many times better rocketd is."""

    row: str
    name: str
    ratio: float

    @property
    def label(self) -> str:
        """The ratio in two digits: ``0.36``, ``2.4``, ``32``."""
        return (
            f"{self.ratio:.0f}" if self.ratio >= 10 else f"{self.ratio:.2g}" if self.ratio < 1 else f"{self.ratio:.1f}"
        )


@dataclass(frozen=True)
class Theme:
    """Colours of a picture."""

    paper: str
    ink: str
    grid: str
    colours: Mapping[str, str]


THEMES = {
    "light": Theme(
        "#ffffff",
        "#1f2328",
        "#d1d9e0",
        {"CPU time": "#3f51b5", "rate": "#94a1e0", "memory": "#00796b", "time": "#d9822b"},
    ),
    "dark": Theme(
        "#1e2129",
        "#e6e8ee",
        "#41454f",
        {"CPU time": "#8c9eff", "rate": "#5563b8", "memory": "#4db6ac", "time": "#ffb74d"},
    ),
}


def bars(results: Mapping[str, Any]) -> list[Bar]:
    """Return the bars of a run in its JSON form, from the top: rows without a load first, then the loads as measured."""
    figures: dict[str, Figure] = {figure.key: figure for figure in NAMES}
    found = [
        Bar(row["name"], NAMES[figures[key]], figure["ratio"])
        for row in results["rows"]
        for key, figure in row["figures"].items()
        if key in figures and figure["ratio"]
    ]
    return sorted(found, key=lambda bar: bar.name in ("CPU time", "rate") and not bar.row.startswith("start"))


def draw(shown: Sequence[Bar], theme: Theme, path: Path) -> None:
    """Write the picture as SVG, with its text as text."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Picture
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.patches import Patch

    rows = list(dict.fromkeys(bar.row for bar in shown))
    tops, top = {}, 0.0
    for row in rows:
        tops[row] = top
        top += max(2, sum(bar.row == row for bar in shown)) + 0.7
    with mpl.rc_context(
        {"svg.hashsalt": "rocketd", "svg.fonttype": "none", "font.size": 10.5, "text.color": theme.ink}
    ):
        picture = Picture(figsize=(5.4, 0.8 + top * 0.16), facecolor=theme.paper)
        picture.set_layout_engine(ConstrainedLayoutEngine(h_pad=0.12))
        axes = picture.add_subplot(facecolor=theme.paper)
        for row in rows:
            own = [bar for bar in shown if bar.row == row]
            first = tops[row] + (max(2, len(own)) - len(own)) / 2
            for place, bar in enumerate(own):
                better = bar.ratio >= 1
                axes.barh(first + place, bar.ratio - 1, left=1, height=0.9, color=theme.colours[bar.name])
                axes.annotate(
                    bar.label,
                    (bar.ratio, first + place),
                    (3 if better else -3, 0),
                    textcoords="offset points",
                    ha="left" if better else "right",
                    va="center",
                    fontsize=9,
                )
        labels = [textwrap.fill(row, 26) for row in rows]
        axes.set_yticks([tops[row] + 0.5 for row in rows], labels)
        axes.set_ylim(top - 0.6, -1.2)
        axes.set_xscale("log", base=2)
        axes.set_xlim(0.16, 56)
        ticks = [0.25, 0.5, 1, 2, 4, 8, 16, 32]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.tick_params(colors=theme.ink, length=0)
        axes.tick_params(axis="x", labeltop=True)
        axes.grid(axis="x", color=theme.grid, linewidth=0.6)
        axes.axvline(1, color=theme.ink, linewidth=1)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        axes.set_title("times better than Apache 4.9.7", fontsize=11, fontweight="bold", pad=8)
        present = [name for name in theme.colours if any(bar.name == name for bar in shown)]
        legend = axes.legend(
            handles=[Patch(color=theme.colours[name], label=name) for name in present],
            loc="center right",
            bbox_to_anchor=(1, 0.5),
            facecolor=theme.paper,
            edgecolor=theme.grid,
            fontsize=9,
        )
        legend.get_frame().set_alpha(1)
        picture.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def main(words: Sequence[str]) -> int:
    """Draw the results that the command line names, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks plot", description="Draw the results of a run.")
    parser.add_argument("results", type=Path, help="JSON file of a run")
    parser.add_argument(
        "--dir", type=Path, default=DIRECTORY, help="directory of the pictures (default: docs/pictures)"
    )
    given = parser.parse_args(words)
    shown = bars(json.loads(given.results.read_text()))
    if not shown:
        parser.error(f"{given.results} has no figure of both sides; run both")
    given.dir.mkdir(parents=True, exist_ok=True)
    for name, theme in THEMES.items():
        path = given.dir / f"benchmarks-{name}.svg"
        draw(shown, theme, path)
        print(path)
    return 0
