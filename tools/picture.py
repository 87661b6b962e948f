"""Draws a simulated run: who led, who was in sync and which broker was down, over virtual time.

    python tools/picture.py [--check] [--scenario FILE] [--seed N] [--out FILE]

By default it writes docs/run.svg, the picture in README.md. The same run is drawn as the same bytes. The picture has a
ground of its own, and dark colours where the reader prefers them. Exit status: 0 done, 1 the file is out of date.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import final
from xml.sax.saxutils import escape

from run_history import CATCHING_UP, DOWN, IN_SYNC, LEADER, History, Lane, history_of

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "scenarios" / "torn-tail-power-loss.yaml"
SEED = 7
PICTURE = ROOT / "docs" / "run.svg"
PARTITION = "t-0"

WIDTH, LEFT, RIGHT, TOP = 960, 96, 20, 62
BAR, LABEL, GAP = 24, 18, 10
# The width of a letter of the labels, enough for every letter: a text that does not fit into its bar is left out.
LETTER = 6.6
SECOND_US = 1_000_000
CLASSES = {LEADER: "leader", IN_SYNC: "insync", CATCHING_UP: "behind", DOWN: "down"}

STYLE = """\
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.faint { fill: #59636e }
.ground { fill: #ffffff; stroke: #d1d9e0 }
.grid { stroke: #d1d9e0 }
.plain { fill: #eaeef2; stroke: #ffffff }
.leader { fill: #0969da }
.insync { fill: #aceebb }
.behind { fill: #f5d57a }
.down { fill: #59636e }
.onleader, .ondown { fill: #ffffff }
.fault { stroke: #cf222e; stroke-width: 2.5 }
.faulttext { fill: #cf222e }
.repair { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.faint { fill: #9198a1 }
.ground { fill: #0d1117; stroke: #3d444d }
.grid { stroke: #3d444d }
.plain { fill: #262c36; stroke: #0d1117 }
.leader { fill: #1f6feb }
.insync { fill: #196c2e }
.behind { fill: #7d5a08 }
.down { fill: #656c76 }
.fault { stroke: #ff7b72 }
.faulttext { fill: #ff7b72 }
.repair { stroke: #f0f6fc }
}
"""


@final
class Picture:
    """The picture of one run, drawn from the top down."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._parts: list[str] = []
        # Half a second after the last change; what follows is said in words.
        self._end_us = min(history.end_us, history.last_us + SECOND_US // 2)
        self._y = TOP

    def svg(self) -> str:
        """Returns the picture as the text of an SVG file."""
        history = self._history
        self._grid_y = self._y
        self._lane("leader", history.leader, {})
        self._lane("in sync", history.in_sync, {})
        for name, lane in sorted(history.brokers.items()):
            self._lane(name.replace("-", " "), lane, CLASSES)
        grid = list(self._grid())
        self._y += 20
        self._legend()
        command = f"replog sim run {history.scenario} --seed {history.seed}"
        head = [
            f"<title>{escape(command)}</title>",
            f"<style>\n{STYLE}</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{self._y - 1}" rx="6"/>',
            _text(LEFT, 24, command, "title"),
            _text(
                LEFT,
                44,
                f"one partition, {PARTITION}, on {len(history.brokers)} brokers; simulated time",
                "faint",
            ),
        ]
        size = f'width="{WIDTH}" height="{self._y}" viewBox="0 0 {WIDTH} {self._y}"'
        root = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        return "\n".join([root, *head, *grid, *self._parts, "</svg>\n"])

    def _x(self, at_us: int) -> float:
        return LEFT + min(at_us, self._end_us) * (WIDTH - LEFT - RIGHT) / self._end_us

    def _lane(self, name: str, lane: Lane, classes: dict[str, str]) -> None:
        """Draw a lane: faults above its bar, what the broker did about them below it."""
        if any(mark.is_fault for mark in lane.marks):
            self._y += LABEL
        self._parts.append(_text(LEFT - 10, self._y + 16, name, "", anchor="end"))
        for span in lane.spans:
            x, width = self._x(span.start_us), self._x(span.end_us) - self._x(span.start_us)
            kind = classes.get(span.what, "plain")
            self._parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{self._y}" width="{max(width, 1):.1f}" height="{BAR}"/>'
            )
            if width >= LETTER * len(span.what) + 4:
                self._parts.append(
                    _text(x + width / 2, self._y + 16, span.what, f"on{kind}", anchor="middle")
                )
        for mark in lane.marks:
            self._mark(self._x(mark.at_us), mark.what, is_fault=mark.is_fault)
        self._y += BAR + GAP + (LABEL if any(not mark.is_fault for mark in lane.marks) else 0)

    def _mark(self, x: float, what: str, *, is_fault: bool) -> None:
        kind = "fault" if is_fault else "repair"
        self._parts.append(_line(x, self._y - 4, x, self._y + BAR + (0 if is_fault else 5), kind))
        y = self._y - 8 if is_fault else self._y + BAR + 15
        self._parts.append(_text(x + (-1 if is_fault else 3), y, what, "faulttext" if is_fault else ""))

    def _grid(self) -> Iterable[str]:
        """Returns a line for each second, to be drawn below everything else."""
        for second in range(self._end_us // SECOND_US + 1):
            x = self._x(second * SECOND_US)
            yield _line(x, self._grid_y - 6, x, self._y, "grid")
            yield _text(x, self._y + 14, f"{second} s", "faint", anchor="middle")

    def _legend(self) -> None:
        """Draw what the colours mean, and say what follows."""
        self._y += 12
        x = float(LEFT)
        for what, kind in CLASSES.items():
            self._parts.append(f'<rect class="{kind}" x="{x:.1f}" y="{self._y}" width="14" height="14"/>')
            self._parts.append(_text(x + 20, self._y + 11, what, "faint"))
            x += 34 + LETTER * len(what)
        rest = f"the run ends at {self._history.end_us / SECOND_US:g} s: every replica agrees"
        if self._history.is_held:
            self._parts.append(_text(WIDTH - RIGHT, self._y + 11, rest, "faint", anchor="end"))
        self._y += 30


def _text(x: float, y: float, what: str, kind: str, *, anchor: str = "start") -> str:
    how = f' class="{kind}"' if kind else ""
    how += f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.0f}"{how}>{escape(what)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.0f}" x2="{x2:.1f}" y2="{y2:.0f}"/>'


def main() -> int:
    """Draw or check the picture; returns the exit status."""
    parser = argparse.ArgumentParser(description="Draw a simulated run as an SVG file.")
    parser.add_argument("--scenario", type=Path, default=SCENARIO)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=PICTURE)
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    arguments = parser.parse_args()
    # The lanes show what the simulated nodes would log.
    logging.getLogger().addHandler(logging.NullHandler())
    drawn = Picture(history_of(arguments.scenario, arguments.seed, PARTITION)).svg()
    if not arguments.check:
        arguments.out.write_text(drawn, encoding="utf-8")
    elif not arguments.out.exists() or arguments.out.read_text(encoding="utf-8") != drawn:
        print(f"{arguments.out} is out of date: run make generate")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
