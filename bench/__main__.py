"""`python -m bench [PART…]`: every figure of the project, each beside its floor or its mark in the same run.

The parts are storage, simulate, compiled, history, cluster, latency and memory; `compiled` needs what `make compiled`
makes. `python -m bench paired --before REV` compares with another commit, as `python -m bench simulate --before REV`
does for the simulator. `python -m bench scale` measures how the cost of the store grows (`scale.py`).
"""

from __future__ import annotations

import importlib
import sys

from bench import scale
from bench.table import Line, show

PARTS = ("storage", "simulate", "compiled", "history", "cluster", "latency", "memory")


def main(names: list[str]) -> int:
    """Measure the parts with these names, or all, and print a table.

    Returns the exit status: 1 if a mark is not met, 2 for an unknown name.
    """
    if names[:1] == ["scale"]:
        return scale.main(names[1:])
    if names[:1] == ["paired"] or names[:2] == ["simulate", "--before"]:
        return _show(importlib.import_module(f"bench.{names[0]}").run(names[1:]))
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"error: no benchmark {unknown[0]!r}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    lines: list[Line] = []
    for name in names or list(PARTS):
        print(f"measuring {name} ...", file=sys.stderr)
        lines += importlib.import_module(f"bench.{name}").run()
    return _show(lines)


def _show(lines: list[Line]) -> int:
    show(lines)
    return 0 if all(line.is_met is not False for line in lines) else 1


if __name__ == "__main__":
    if not __debug__:
        sys.exit("error: asserts must stay on: do not run with -O")
    sys.exit(main(sys.argv[1:]))
