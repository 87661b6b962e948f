"""Writes recordings as one HTML page: a template, its style and its script, and the runs as compressed columns."""

from __future__ import annotations

import json
import re
import sys
import zlib
from array import array
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TextIO

from sim.view.compare import Difference
from sim.view.recording import Recording

# The parts of the page's script, each of which uses those before it.
SCRIPTS = (
    "data.js", "replicas.js", "causality.js", "search.js", "view.js", "draw.js", "tracks.js", "messages.js", "logs.js",
    "panels.js", "input.js", "main.js",
)  # fmt: skip
_LEVEL = 6


def write_page(output: TextIO, recordings: Sequence[Recording], difference: Difference | None = None) -> None:
    """Write the page of one run, or of two that are compared: then no `difference` means that they are equal."""
    assert 1 <= len(recordings) <= 2, len(recordings)
    names = [f"{each.header.scenario}, seed {each.header.seed}" for each in recordings]
    parts = {
        "@TITLE@": escape(f"replog: {' | '.join(names)}"),
        "@STYLE@": _asset("page.css"),
        "@SCRIPT@": "\n".join(map(_asset, SCRIPTS)),
    }
    before, _, after = _asset("page.html").partition("@DATA@")
    output.write(_filled(before, parts))
    for recording in recordings:
        output.write(f'<script type="application/json" data-run>{json.dumps(_stored(recording))}</script>\n')
    if len(recordings) == 2:
        text = json.dumps(_stored_difference(recordings, difference)).replace("<", "\\u003c")
        output.write(f'<script type="application/json" id="stored-difference">{text}</script>\n')
    output.write(_filled(after, parts))


def _asset(name: str) -> str:
    text = files("sim.view").joinpath("page", name).read_text(encoding="utf-8")
    assert "</script" not in text or name.endswith(".html"), name
    return text


def _filled(text: str, parts: dict[str, str]) -> str:
    """Returns the text with the parts in place of their marks; a mark inside a part stays."""
    return re.sub("|".join(map(re.escape, parts)), lambda mark: parts[mark[0]], text)


def _stored(recording: Recording) -> dict[str, object]:
    """Returns a run as the page reads it; only base64 and names of ours, so nothing in it can end the script."""
    columns = recording.columns
    text = columns.finish()
    state = json.dumps(_state(recording), separators=(",", ":")).encode()
    return {
        "state": _base64(zlib.compress(state, _LEVEL)),
        "text": _base64(text),
        "columns": {
            name: {"type": column.typecode, "data": _base64(zlib.compress(_little_endian(column), _LEVEL))}
            for name, column in columns.arrays().items()
        },
    }


def _state(recording: Recording) -> dict[str, object]:
    """Returns what the page knows beside the columns; called after their end, which may add nodes."""
    columns = recording.columns
    return {
        "file": recording.file,
        "scenario": recording.header.scenario,
        "seed": recording.header.seed,
        "count": len(columns),
        "skipped": recording.skipped,
        "isPart": recording.is_part,
        "nodes": columns.nodes.all(),
        "kinds": columns.kinds.all(),
        "story": recording.story,
        "spans": [span._asdict() for span in recording.spans.finish(len(columns))],
        "partitions": {
            name: tracks.as_json() for name, tracks in sorted(recording.tracks.partitions.items())
        },
    }


def _stored_difference(recordings: Sequence[Recording], difference: Difference | None) -> dict[str, object]:
    """Returns the number of the event that differs, and its row in the first run that shows it.

    The number is -1 for equal runs, the row is -1 where no run shows the event.
    """
    if difference is None:
        return {"event": -1, "run": 0, "row": -1, "lines": []}
    run, row = 0, -1
    for number, recording in enumerate(recordings):
        place = difference.event - recording.skipped
        if 0 <= place < len(recording.columns):
            run, row = number, place
            break
    return {"event": difference.event, "run": run, "row": row, "lines": difference.lines}


def _little_endian(column: array[int] | array[float]) -> bytes:
    """Returns the bytes as browsers on today's machines hold them."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
