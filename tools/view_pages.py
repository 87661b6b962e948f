"""Opens pages of `replog view` in a headless Chromium: draws the pictures of the docs, and measures the panning.

    python -m tools.view_pages shots [--out DIRECTORY]
    python -m tools.view_pages frames [--events N]

The pictures show runs that anybody can repeat. Frames are counted while the page pans, at several zooms, over a run of
200,000 events by default.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sim.run import run_scenario
from sim.scenario.loading import parse_scenario
from sim.view.write import write_view
from tools.browser import Page, browser_page, browser_program

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EVENTS = 200_000
# The widths of the measured windows, in events.
WINDOWS = (EVENTS, EVENTS // 10, 5_000, 500)
FRAMES = 90
OPENING_S = 60.0
LOOK_S = 0.05

# Pans to and fro for so many frames; returns the milliseconds between them, sorted.
_PAN = """(async (events, frames) => {
  const run = app.runs[0], whole = wholeExtent();
  const width = (whole.to - whole.from) * Math.min(1, events / run.count), from = (whole.from + whole.to - width) / 2;
  showWindow(from, from + width);
  const gaps = [];
  let last = await new Promise(requestAnimationFrame);
  for (let i = 0; i < frames; i++) {
    pan(i % 20 < 10 ? 0.02 : -0.02);
    const now = await new Promise(requestAnimationFrame);
    gaps.push(now - last);
    last = now;
  }
  return gaps.sort((a, b) => a - b);
})"""

BUSY = """
scenario: busy
duration: {seconds}s
topics: {{t: {{partitions: 2, replicas: 3, config: {{min.insync.replicas: 2}}}}}}
producers: [{{topic: t, clients: 3, rate: 60/s, acks: all}}]
consumers: [{{topic: t}}]
steps:
  - {{at: 20s, kill: leader(t/0), down: 3s}}
"""
# Events of the busy scenario in a second of virtual time, at least.
BUSY_EVENTS_A_SECOND = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Panning:
    """The frames while a window of so many events pans: the median gap, and the frames a second over all of them."""

    events: int
    median_ms: float
    frames_a_second: float


def busy_trace(path: Path, events: int) -> None:
    """Write the trace of a run of three brokers with more events than that."""
    scenario = parse_scenario(BUSY.format(seconds=events // BUSY_EVENTS_A_SECOND + 1), "busy.yaml")
    with path.open("wb") as file:
        run_scenario(scenario, 1, trace_file=file)


def open_page(page: Page, path: Path) -> float:
    """Open a page; returns the seconds until it is drawn."""
    start = time.perf_counter()
    page.open_file(path)
    while not page.run("typeof app === 'object' && !document.getElementById('loading')"):
        assert time.perf_counter() - start < OPENING_S, page.problems
        time.sleep(LOOK_S)
    return time.perf_counter() - start


def measure_panning(page: Page) -> list[Panning]:
    """Returns how an open page pans, window by window."""
    found = []
    for events in WINDOWS:
        gaps: list[float] = page.run(f"{_PAN}({events}, {FRAMES})")
        median, mean = gaps[len(gaps) // 2], sum(gaps) / len(gaps)
        found.append(Panning(events=events, median_ms=median, frames_a_second=1_000 / mean))
    return found


@contextmanager
def workplace() -> Iterator[Path]:
    """Make a folder until the end of the block; a browser that ends may still write into it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def frames(events: int) -> None:
    """Print how a page of at least so many events opens and pans."""
    with workplace() as folder:
        trace, page_file = folder / "busy.jsonl", folder / "busy.html"
        busy_trace(trace, events)
        write_view(page_file, trace)
        with browser_page(folder / "profile") as page:
            opened_s = open_page(page, page_file)
            count = page.run("app.runs[0].count")
            print(f"{count:,} events, {page_file.stat().st_size / 1e6:.1f} MB, open in {opened_s:.1f} s")
            for each in measure_panning(page):
                print(
                    f"a window of {each.events:,} events: {each.frames_a_second:.0f} frames a second, "
                    f"median gap {each.median_ms:.1f} ms"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """A picture of a page after a script in it."""

    name: str
    traces: tuple[str, ...]
    script: str
    dark: bool = False
    width: int = 1360
    height: int = 860


# The scenarios of docs/counterexamples.md, and the bug that each is about.
COUNTEREXAMPLES = {
    "kip-101-lost-record": "truncation-generation-1",
    "kip-101-divergence": "truncation-generation-1",
    "kip-279-fast-fail-over": "truncation-generation-2",
    "kip-320-stale-fetch": "truncation-generation-3",
    "late-acknowledgement": "append-outlives-leadership",
    "re-elected-leader": "without-is-same-leader-epoch",
}
# Each trace by its name: scenario, seed and the bug that is planted.
RUNS: dict[str, tuple[str, int, str | None]] = {
    "violated.jsonl": ("divergence-truncation", 7, "truncation-keeps-batch"),
    "held.jsonl": ("divergence-truncation", 7, None),
    "bad-network.jsonl": ("bad-network", 7, None),
    **{f"{name}.jsonl": (name, 1, bug) for name, bug in COUNTEREXAMPLES.items()},
}
SHOTS = (
    Shot(
        name="viewer-run", traces=("held.jsonl",), dark=True,
        script="showWindow(1.4e6, 10.4e6); app.pointer = { x: xOf(5e6), y: 300 }; redraw()",
    ),
    Shot(name="viewer-violation", traces=("violated.jsonl",), script="showViolation()"),
    Shot(
        name="viewer-compare", traces=("violated.jsonl", "held.jsonl"), script="showFirstDifference()", width=1240,
    ),
    *(
        Shot(
            name=f"counterexample-{name}", traces=(f"{name}.jsonl",), script="showViolation()", width=1120,
            height=700,
        )
        for name in COUNTEREXAMPLES
    ),
)  # fmt: skip


def shots(out: Path) -> None:
    """Draw every picture into a folder."""
    with workplace() as folder:
        for name, (scenario, seed, bug) in RUNS.items():
            with (folder / name).open("wb") as file:
                run_scenario(scenario, seed, trace_file=file, bug=bug)
        for number, shot in enumerate(SHOTS):
            page_file = folder / f"{shot.name}.html"
            write_view(page_file, *(folder / name for name in shot.traces))
            profile = folder / f"profile-{number}"
            with browser_page(profile, width=shot.width, height=shot.height, dark=shot.dark) as page:
                open_page(page, page_file)
                page.run(shot.script)
                page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
                assert not page.problems, page.problems
                (out / f"{shot.name}.png").write_bytes(page.screenshot())
                print(out / f"{shot.name}.png")


def main() -> int:
    """Do one of both; returns the exit status."""
    parser = argparse.ArgumentParser(description="Open pages of `replog view` in a headless Chromium.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("shots").add_argument("--out", type=Path, default=DOCS)
    commands.add_parser("frames").add_argument("--events", type=int, default=EVENTS)
    arguments = parser.parse_args()
    if browser_program() is None:
        print("error: no Chromium on this machine: apt-get install chromium", file=sys.stderr)
        return 2
    if arguments.command == "shots":
        shots(arguments.out)
    else:
        frames(arguments.events)
    return 0


if __name__ == "__main__":
    sys.exit(main())
