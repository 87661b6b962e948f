"""A trace file is read whole, and whatever is no trace is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.view.trace_file import MAX_LINE_BYTES, Header, TraceFile, TraceFileError
from tests.sim.view.traces import HEADER, event, write_trace


def read(path: Path) -> list[int]:
    with path.open("rb") as file:
        return [each.at_us for each in TraceFile(path, file).events()]


def test_a_trace_has_a_header_and_its_events_in_order(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "a", [event(0, "broker-1", "start", life=1), event(7, "broker-1", "end", how="crash")]
    )
    with path.open("rb") as file:
        trace = TraceFile(path, file)
        assert trace.header == Header(scenario="by-hand", seed=3)
        assert [(each.at_us, each.kind) for each in trace.events()] == [(0, "start"), (7, "end")]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("", 1, "empty"),
        ("no JSON\n", 1, "no trace of replog"),
        ("[]\n", 1, "no JSON object"),
        ('{"scenario":"x"}\n', 1, "no trace of replog"),
        ('{"format":"replog-trace-9","scenario":"x","seed":1}\n', 1, "format replog-trace-9"),
        ('{"format":"replog-trace-1","scenario":"x"}\n', 1, "no scenario and seed"),
        (HEADER, 1, "cut off"),
        (f'{HEADER}\n{{"at":1,"node":"a"}}\n', 2, "needs `at`"),
        (f'{HEADER}\n{event(1, "a", "x")}\n{{"at":2,"no', 3, "cut off"),
        (f'{HEADER}\n{event(1, "a", "x")}\n\x00\x00\n', 3, "damaged"),
        (f'{HEADER}\n{event(5, "a", "x")}\n{event(4, "a", "x")}\n', 3, "goes back"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_whole_trace_is_refused_with_its_line(
    tmp_path: Path, content: str, line: int, reason: str
) -> None:
    path = tmp_path / "a"
    path.write_text(content)
    with pytest.raises(TraceFileError, match=reason) as raised:
        read(path)
    assert raised.value.line == line


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.write(b"{")
        file.truncate(MAX_LINE_BYTES * 3)
    with pytest.raises(TraceFileError, match="longer than"):
        read(path)
