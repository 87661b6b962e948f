"""The page works in a real browser: what it draws from, its keys, its mouse, and how fast it pans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sim.run import run_scenario
from sim.view.columns import NOTHING, Flag
from sim.view.recording import Recording, Window, read_recording
from sim.view.replica_logs import Op, ReplicaLog
from sim.view.write import write_view
from tests.sim.view.traces import event, request, write_trace
from tools.browser import Page, browser_page, browser_program
from tools.view_pages import EVENTS, busy_trace, measure_panning, open_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser_program() is None, reason="no Chromium: apt-get install chromium"),
]
SCENARIO, SEED, BUG = "divergence-truncation", 7, "truncation-keeps-batch"
# The page may pan no slower, as the median of its frames.
SLOWEST_FRAME_MS = 1_000 / 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, bug in (("violated.jsonl", BUG), ("held.jsonl", None)):
        with (folder / name).open("wb") as file:
            run_scenario(SCENARIO, SEED, trace_file=file, bug=bug)
    with (folder / "lossy.jsonl").open("wb") as file:
        run_scenario("bad-network", SEED, trace_file=file)
    write_view(folder / "violated.html", folder / "violated.jsonl")
    write_view(folder / "part.html", folder / "violated.jsonl", window=Window(until_us=3_000_000))
    write_view(folder / "held.html", folder / "held.jsonl")
    write_view(folder / "lossy.html", folder / "lossy.jsonl")
    write_view(folder / "compared.html", folder / "violated.jsonl", folder / "held.jsonl")
    return folder


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[Page]:
    with browser_page(folder / "profile") as page:
        yield page


@pytest.fixture(scope="module")
def violated(folder: Path) -> Recording:
    return read_recording(folder / "violated.jsonl")


@pytest.fixture(scope="module")
def lossy(folder: Path) -> Recording:
    recording = read_recording(folder / "lossy.jsonl")
    recording.columns.finish()
    return recording


def opened(browser: Page, path: Path) -> Page:
    """Returns the page after a fresh load of the file; whatever is wrong in it fails the test."""
    browser.problems.clear()
    browser.requests.clear()
    browser.open_file(Path("/dev/null"))
    open_page(browser, path)
    assert browser.problems == []
    return browser


def opened_by_hand(browser: Page, folder: Path, *lines: str) -> Page:
    """Returns the page of a trace that consists of these lines."""
    write_view(folder / "hand.html", write_trace(folder / "hand.jsonl", lines))
    return opened(browser, folder / "hand.html")


def drawn(page: Page) -> None:
    """Wait until the last change is drawn."""
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.problems == []


def selected(page: Page) -> int:
    row = page.run("app.selected ? app.selected.row : -1")
    assert isinstance(row, int)
    return row


def test_a_page_loads_nothing_but_itself(browser: Page, folder: Path) -> None:
    page = opened(browser, folder / "held.html")
    assert [each for each in page.requests if "null" not in each] == [(folder / "held.html").as_uri()]


def test_the_first_violation_is_selected_and_marked(browser: Page, folder: Path, violated: Recording) -> None:
    page = opened(browser, folder / "violated.html")
    row = next(row for row, flags in enumerate(violated.columns.flags) if flags & Flag.VIOLATION)
    assert selected(page) == row
    assert "violation" in page.run("byId('verdict').textContent")
    assert "VIOLATED log-matching" in page.run("byId('event').textContent")


@pytest.mark.parametrize(
    ("name", "verdict"), [("held.html", "no violation"), ("part.html", "no violation in the part shown")]
)
def test_the_verdict_is_of_the_part_that_is_shown(
    browser: Page, folder: Path, name: str, verdict: str
) -> None:
    page = opened(browser, folder / name)
    assert page.run("byId('verdict').textContent") == verdict


def test_what_is_lost_with_its_connection_has_no_step_that_sent_it(browser: Page, tmp_path: Path) -> None:
    page = opened_by_hand(
        browser,
        tmp_path,
        event(1, "broker-1", "timer", key="a"),
        event(2, "broker-2", "timer", key="a"),
        event(9, "network", "lost", from_=1, to=2, messages=3, why="connection broken"),
    )
    page.run("select(app.runs[0], 2)")
    text = page.run("byId('event').innerText")
    assert "3 messages lost with their connection" in text
    assert "Go to the step" not in text and "causal" not in text


def test_keys_step_by_event_and_by_node(browser: Page, folder: Path) -> None:
    page = opened(browser, folder / "held.html")
    page.run("select(app.runs[0], 500)")
    for key, row in (("j", 501), ("j", 502), ("k", 501)):
        page.press(key)
        assert selected(page) == row
    page.press("J")
    nodes = page.run("[501, app.selected.row].map((row) => app.runs[0].node[row])")
    assert selected(page) > 501 and nodes[0] == nodes[1]
    page.press("Escape")
    assert selected(page) == NOTHING


def test_the_wheel_zooms_around_the_pointer_and_a_drag_pans(browser: Page, folder: Path) -> None:
    page = opened(browser, folder / "held.html")
    drawn(page)
    before = page.run("[app.view.from, app.view.to, positionAt(600)]")
    page.mouse("mouseWheel", 600, 400, deltaX=0, deltaY=-400)
    drawn(page)
    after = page.run("[app.view.from, app.view.to, positionAt(600)]")
    assert after[1] - after[0] < (before[1] - before[0]) * 0.7
    assert after[2] == pytest.approx(before[2], rel=1e-6)
    page.mouse("mousePressed", 600, 400, button="left", buttons=1, clickCount=1)
    page.mouse("mouseMoved", 500, 400, button="left", buttons=1)
    page.mouse("mouseReleased", 500, 400, button="left", clickCount=1)
    drawn(page)
    assert page.run("positionAt(500)") == pytest.approx(after[2], rel=1e-6)


def test_a_click_on_an_event_selects_it(browser: Page, folder: Path) -> None:
    page = opened(browser, folder / "held.html")
    page.run("showAround(app.runs[0], 3000, 0.5); unselect()")
    drawn(page)
    x, y = page.run(
        "(() => { const run = app.runs[0], box = byId('canvas').getBoundingClientRect();"
        "return [box.left + xOf(place(run, 3000)), box.top + run.laneY[run.node[3000]] - app.view.scroll]; })()"
    )
    page.click(x, y)
    picked = selected(page)
    same = page.run(f"[3000, {picked}].map((row) => [app.runs[0].at[row], app.runs[0].node[row]])")
    assert same[0] == same[1]


def test_search_finds_lines_and_steps_through_them(browser: Page, folder: Path) -> None:
    lines = (folder / "held.jsonl").read_text().splitlines()[1:]
    page = opened(browser, folder / "held.html")
    for wanted, matches in (
        ("replica.TRUNCATED", "replica.truncated"),
        ("/became_(leader|follower)/", "became_"),
    ):
        page.run(f"search({json.dumps(wanted)})")
        assert page.run("[...app.hits[0]]") == [row for row, line in enumerate(lines) if matches in line]
    page.run("unselect(); showAll()")
    page.press("n")
    assert "became_" in lines[selected(page)]
    page.run("search('/(/')")
    assert page.run("byId('hits').textContent") == "no regular expression"


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ('/^{"at":2,/', [1]),
        ("/heal b -> a.*}$/", [2]),
        # No match goes on in the next line.
        ("/cut a[^{]*heal b/", []),
        (r"/cut[^x]*\n/", []),
        ("/x*/", [0, 1, 2]),
    ],
)
def test_a_regular_expression_sees_one_line_at_a_time(
    browser: Page, tmp_path: Path, wanted: str, rows: list[int]
) -> None:
    told = ("cut a -> b", "cut b -> a", "heal b -> a")
    lines = [event(n + 1, "world", "tell", what=what) for n, what in enumerate(told)]
    page = opened_by_hand(browser, tmp_path, *lines)
    page.run(f"search({json.dumps(wanted)})")
    assert page.run("[...app.hits[0]]") == rows


def test_after_a_search_that_found_something_keys_step_through_it(browser: Page, tmp_path: Path) -> None:
    lines = [event(n, "broker-1", "timer", key=key) for n, key in enumerate(("wake", "look", "wake"))]
    page = opened_by_hand(browser, tmp_path, *lines)
    for key in ("/", *"wake", "Enter", "n"):
        page.press(key)
    assert (selected(page), page.run("byId('search').value")) == (2, "wake")
    for key in ("/", "x", "Enter", "n"):
        page.press(key)
    assert page.run("[byId('search').value, byId('hits').textContent]") == ["wakexn", "0 found"]


def test_keys_step_after_a_click_on_the_filter(browser: Page, folder: Path) -> None:
    page = opened(browser, folder / "held.html")
    page.run("select(app.runs[0], 500); byId('filter').open = true")
    box = "document.querySelector('#filter input').getBoundingClientRect()"
    page.click(*page.run(f"[{box}.x + 4, {box}.y + 4]"))
    assert page.run("document.activeElement.type") == "checkbox"
    page.press("j")
    assert selected(page) > 500


def test_lines_found_and_faults_of_both_runs_are_stepped_through_in_the_order_of_time(
    browser: Page, tmp_path: Path
) -> None:
    one, two = (
        write_trace(
            tmp_path / f"{name}.jsonl", [event(at, "world", "tell", what="cut a -> b") for at in times]
        )
        for name, times in (("one", (10, 30, 40)), ("two", (20, 30, 50)))
    )
    write_view(tmp_path / "both.html", one, two)
    page = opened(browser, tmp_path / "both.html")
    page.run("search('cut a')")
    order = [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]]
    for forth, back in (("n", "N"), ("f", "F")):
        page.run("unselect(); showAll()")
        for key, places in ((forth, order), (back, order[-2::-1])):
            for place in places:
                page.press(key)
                assert page.run("[app.selected.run.number, app.selected.row]") == place


def test_what_the_filter_hides_is_no_line_found_and_no_fault_but_a_violation_stays(
    browser: Page, tmp_path: Path
) -> None:
    told = ("cut a -> b", "VIOLATED log-matching: t-0: x", "cut b -> a")
    lines = [event(n, "world", "tell", what=what) for n, what in enumerate(told)]
    lines.append(event(9, "broker-1", "timer", key="cut"))
    page = opened_by_hand(browser, tmp_path, *lines)
    page.run("search('cut'); unselect(); showAll()")
    page.run("document.querySelector('#filter input[value=tell]').click()")
    assert page.run("[[...app.hits[0]], byId('hits').textContent]") == [[3], "1 found"]
    page.press("f")
    assert selected(page) == NOTHING
    flags = page.run(
        "(() => { const at = [], drawn = flag; flag = (x) => at.push(x); drawDiagram(); flag = drawn;"
        "return [at, [1].map((row) => xOf(place(app.runs[0], row)))]; })()"
    )
    assert flags[0] == flags[1]
    page.press("v")
    assert selected(page) == 1


def test_a_message_that_crosses_a_window_of_long_silence_has_its_arrow(browser: Page, tmp_path: Path) -> None:
    lines = [event(1, "broker-2", "timer", key="a"), request(140_000, "broker-1", "broker-2", 100_000)]
    page = opened_by_hand(browser, tmp_path, *lines)
    page.run("unselect(); showWindow(110000, 130000)")
    assert page.run("arrowRows(app.runs[0], windowOf(app.runs[0]))") == [1]


def test_the_filter_hides_nodes_and_kinds_from_steps_and_search(browser: Page, folder: Path) -> None:
    page = opened(browser, folder / "held.html")
    for name in ("producer-1", "timer"):
        page.run(f"document.querySelector('#filter input[value={json.dumps(name)}]').click()")
    hidden = page.run(
        "(() => { const run = app.runs[0]; let count = 0; for (let row = 0; row < run.count; row++)"
        "if (run.shown[row] && (run.kinds[run.kind[row]] === 'timer' || [run.node[row], run.source[row]].some("
        "(node) => run.nodes[node] === 'producer-1'))) count++; return count; })()"
    )
    assert hidden == 0
    page.run('search(\'"key":"producer.wake"\')')
    assert page.run("app.hits[0].length") == 0
    assert page.run("app.lanes.some((lane) => lane.name === 'producer-1')") is False


def causal_sets(recording: Recording, row: int) -> tuple[set[int], set[int]]:
    """Returns the causal past and future of an event by following every edge of the graph."""
    columns = recording.columns
    names = columns.nodes.all()
    following: dict[int, list[int]] = {}
    leading: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    for each in range(len(columns)):
        edges = [columns.cause[each]] if columns.cause[each] != NOTHING else []
        node = columns.node[each]
        if not columns.flags[each] & Flag.LOST and names[node] not in ("world", "network"):
            edges += [last[node]] if node in last else []
            last[node] = each
        for edge in edges:
            following.setdefault(edge, []).append(each)
            leading.setdefault(each, []).append(edge)
    return reached(row, leading), reached(row, following)


def reached(row: int, edges: dict[int, list[int]]) -> set[int]:
    found: set[int] = set()
    waiting = [row]
    while waiting:
        for each in edges.get(waiting.pop(), []):
            if each not in found:
                found.add(each)
                waiting.append(each)
    return found


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_past_and_future_are_those_of_the_graph_of_messages(
    browser: Page, folder: Path, lossy: Recording, share: float
) -> None:
    page = opened(browser, folder / "lossy.html")
    row = int(len(lossy.columns) * share)
    while lossy.columns.nodes.all()[lossy.columns.node[row]] in ("world", "network"):
        row += 1
    past, future = causal_sets(lossy, row)
    marks: list[int] = page.run(f"[...causality(app.runs[0], {row}).marks]")
    assert {each for each, mark in enumerate(marks) if mark & 1} - {row} == past
    assert {each for each, mark in enumerate(marks) if mark & 2} - {row} == future
    assert past and future


def test_a_lost_message_has_a_past_and_no_future(browser: Page, folder: Path, lossy: Recording) -> None:
    page = opened(browser, folder / "lossy.html")
    row = next(row for row, flags in enumerate(lossy.columns.flags) if flags & Flag.LOST)
    past, future = causal_sets(lossy, row)
    counts = page.run(f"causalCounts(causality(app.runs[0], {row}))")
    assert counts == {"past": len(past), "future": 0}
    assert past and not future


def log_at(log: ReplicaLog, row: int) -> dict[str, Any]:
    """Returns a log after an event, from its changes, as the page has it."""
    replayed = ReplicaLog()
    for place in range(0, len(log.changes), 4):
        index, op, offset, epoch = log.changes[place : place + 4]
        if index > row:
            break
        if op == Op.EXTEND:
            replayed.extend(index, offset, epoch)
        elif op == Op.CUT:
            replayed.cut(index, offset)
        else:
            replayed.start_at(index, offset)
    runs = [{"end": run.end, "epoch": run.epoch} for run in replayed.runs]
    return {"start": replayed.start, "runs": runs}


def test_the_logs_under_the_cursor_are_those_after_the_event(
    browser: Page, folder: Path, violated: Recording
) -> None:
    page = opened(browser, folder / "violated.html")
    replicas = violated.tracks.partitions["t-0"].logs.replicas
    for row in range(0, len(violated.columns), 997):
        shown = page.run(
            "Object.fromEntries(Object.entries(app.runs[0].partitions['t-0'].replicas)"
            f".map(([name, replica]) => [name, logAt(replica, {row})]))"
        )
        assert shown == {name: log_at(log, row) for name, log in replicas.items()}


def test_the_axis_changes_to_the_order_of_events_and_back(browser: Page, folder: Path) -> None:
    page = opened(browser, folder / "held.html")
    page.run("select(app.runs[0], 4000)")
    page.press("o")
    drawn(page)
    assert page.run("place(app.runs[0], 4000)") == 4000.5
    page.press("o")
    assert page.run("place(app.runs[0], 4000)") == page.run("app.runs[0].at[4000]")


def test_two_runs_begin_at_their_first_difference(browser: Page, folder: Path) -> None:
    traces = [(folder / name).read_text().splitlines()[1:] for name in ("violated.jsonl", "held.jsonl")]
    first = next(row for row, (a, b) in enumerate(zip(*traces, strict=False)) if a != b)
    page = opened(browser, folder / "compared.html")
    assert (selected(page), page.run("app.runs.length")) == (first, 2)
    assert f"event {first}" in page.run("byId('difference').textContent")


def test_the_address_names_the_selected_event(browser: Page, folder: Path) -> None:
    page = opened(browser, folder / "held.html")
    page.run("select(app.runs[0], 1234)")
    assert page.run("location.hash") == "#event=A1234"
    page.run("unselect(); followLink()")
    assert selected(page) == 1234


def test_a_damaged_page_says_so(browser: Page, folder: Path) -> None:
    text = (folder / "held.html").read_text()
    damaged = folder / "damaged.html"
    damaged.write_text(text.replace('"count"', '"cuont"').replace('"text": "eJ', '"text": "eK'))
    browser.open_file(damaged)
    wait = "new Promise((done) => setTimeout(() => done(byId('loading')?.textContent), 1500))"
    assert "cannot be shown" in browser.run(wait)


def test_the_theme_follows_the_reader_and_the_button(folder: Path) -> None:
    with browser_page(folder / "dark-profile", dark=True) as page:
        opened(page, folder / "held.html")
        assert page.run("document.documentElement.dataset.theme") == "dark"
        page.press("t")
        assert page.run("document.documentElement.dataset.theme") == "light"


@pytest.mark.timeout(600)
def test_two_hundred_thousand_events_pan_at_thirty_frames_a_second(browser: Page, tmp_path: Path) -> None:
    busy_trace(tmp_path / "busy.jsonl", EVENTS)
    write_view(tmp_path / "busy.html", tmp_path / "busy.jsonl")
    page = opened(browser, tmp_path / "busy.html")
    assert page.run("app.runs[0].count") >= EVENTS
    for panning in measure_panning(page):
        assert panning.median_ms <= SLOWEST_FRAME_MS, panning
