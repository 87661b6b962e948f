"""The table of measurements: a value each, what it is measured against, and the mark that it must reach."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One measurement. `target` is its mark, None without one; `peer` is the value of Kafka, as text."""

    what: str
    value: float
    unit: str
    target: float | None = None
    lower_is_better: bool = False
    peer: str = ""
    detail: str = ""

    @property
    def is_met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.lower_is_better else self.value >= self.target


def show(lines: list[Line]) -> None:
    """Print the measurements as a table, 160 columns wide."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="replog, measured in this run (medians)", title_justify="left")
    for heading in ("what", "value", "unit", "mark", "met", "peer", "detail"):
        table.add_column(heading, justify="right" if heading in ("value", "mark") else "left")
    for line in lines:
        met = {None: "", True: "yes", False: "NO"}[line.is_met]
        mark = "" if line.target is None else f"{'<=' if line.lower_is_better else '>='} {line.target:g}"
        table.add_row(
            line.what,
            f"{line.value:,.3g}" if line.value < 100 else f"{line.value:,.0f}",
            line.unit,
            mark,
            met,
            line.peer,
            line.detail,
        )
    Console(width=160).print(table)
