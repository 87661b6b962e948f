"""The gate for the order of sets: each use that sees the order is found, each that does not is not."""

from __future__ import annotations

from pathlib import Path

from tools.unordered import unordered

# Each line after the first three sees the order of `names`.
SEES_ORDER = """\
def all_uses(names: set[str], known: frozenset[int], table: dict[str, set[int]]) -> list[object]:
    found: list[object] = []
    maybe: set[str] | None = names or None
    for name in names: found.append(name)
    found.extend(names)
    found.append([number + 1 for number in known])
    found.append({number: 0 for number in table["a"]})
    found.append(list(names | {"b"}))
    found.append(tuple(sorted(names) and known))
    found.append(", ".join(names))
    found.append(f"{names}")
    found.append(next(iter(known)))
    found.append(names.pop())
    found.append([*known])
    return [*found, *(maybe or ())]
"""
DOES_NOT = """\
def all_uses(names: set[str], known: frozenset[int], table: dict[str, int]) -> list[object]:
    found: list[object] = [sorted(names), len(known), max(known), sum(number for number in known)]
    found.append(any(name in table for name in names))
    found.append({name.upper() for name in names})
    found.append(frozenset({*known, 1}) | known)
    found.append(sorted(f"{name}" for name in names))
    found.append(max([number for number in known]))
    for name in table: found.append(name)
    return found
"""


def test_the_order_of_a_set_is_found_wherever_it_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "uses.py"
    file.write_text(SEES_ORDER, encoding="utf-8")
    lines = {int(line.split(":")[1]) for line in unordered([file])}
    assert lines == set(range(4, 16))


def test_what_has_no_order_is_not_reported(tmp_path: Path) -> None:
    file = tmp_path / "uses.py"
    file.write_text(DOES_NOT, encoding="utf-8")
    assert unordered([file]) == []
