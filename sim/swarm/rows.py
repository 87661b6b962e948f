"""Checks the rows of files before they are counted: whatever is used of a row has the type that it is used with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from sim.run import Verdict
from sim.seeds import ERROR

_FAILED: Final = (Verdict.VIOLATED.value, ERROR)
_VERDICTS: Final = (*(each.value for each in Verdict), ERROR)


def wrong_in_run(row: Mapping[str, Any]) -> str:
    """Returns the name of a member that the row of a drawn run must have otherwise; empty if there is none."""
    is_failed = row.get("verdict") in _FAILED
    is_right = {
        "verdict": row.get("verdict") in _VERDICTS,
        "simulated_ms": is_count(row.get("simulated_ms", 0)),
        "points": _are_texts(row.get("points", [])),
        "buggify": _is_mapping(row.get("buggify", {}))
        and all(map(is_count, row.get("buggify", {}).values())),
        "excused": _is_mapping(row.get("excused", {})),
        "violations": not is_failed or _are_violations(row.get("violations", [])),
        ERROR: row.get("verdict") != ERROR or bool(row.get("violations")) or _is_text(row.get(ERROR)),
        "replay": not is_failed or _is_text(row.get("replay")),
    }
    if row.get("verdict") == Verdict.VIOLATED.value and not row.get("violations"):
        is_right["violations"] = False
    return next((name for name, holds in is_right.items() if not holds), "")


def wrong_in_start(row: Mapping[str, Any]) -> str:
    """Returns the name of a member that the row of a search must have otherwise; empty if there is none."""
    is_right = {
        "verdict": row.get("verdict") in ("found", "missed"),
        "bug": _is_text(row.get("bug")),
        "seeds": is_count(row.get("seeds")),
        "cpu_s": _is_time(row.get("cpu_s")),
        "false_alarms": is_count(row.get("false_alarms")),
        # Earlier files have no such count.
        "undecided": is_count(row.get("undecided", 0)),
        "checker": isinstance(row.get("checker"), str),
    }
    return next((name for name, holds in is_right.items() if not holds), "")


def is_count(value: object) -> bool:
    """Returns whether a value of JSON is a whole number that is not negative; a truth value is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: object) -> bool:
    return is_count(value) or (isinstance(value, float) and math.isfinite(value) and value >= 0)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_violations(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and all(isinstance(each.get(key), str) for key in ("checker", "what"))
        for each in value
    )
