"""Writes the catalogue of buggify points as Markdown: `python -m tools.buggify_points`; `make docs` calls it."""

from __future__ import annotations

from sim.buggify.points import POINTS

_HEAD = ("| point | port | fires in | what it does |", "| --- | --- | --- | --- |")


def markdown() -> str:
    """Returns a table with a row for each point, in the order of the catalogue."""
    rows = [f"| `{each.name}` | {each.port} | {each.percent} % | {each.what} |" for each in POINTS.values()]
    return "\n".join((*_HEAD, *rows)) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
