"""The compiled build: `python tools/compiled.py build|check|status`.

`build` makes `build/compiled` if it was not made from the present files. `check` runs the bundled scenarios and a few
drawn seeds with it and with the interpreter, and compares their trace hashes. Exit status: 0; 1 if a hash differs, or
for `status` if `build/compiled` is missing or was made from other files; 2 if it cannot be built; 3 if there is no C
compiler.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from native_build import BUILT, ROOT, BuildError, NoCompiler, is_made, make
from native_form import FormError

# What `check` runs beside bundled scenarios: in some, disks fail as a broker starts or takes a directory offline.
DRAWN = "600170..600176"
HASHES = ROOT / "tools" / "trace_hashes.py"


def main(arguments: Sequence[str]) -> int:
    """Build or check as the command line says. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tools/compiled.py")
    parser.add_argument("command", choices=("build", "check", "status"))
    parser.add_argument("--seeds", type=int, default=2, help="the seeds of each scenario, from 0 on")
    parser.add_argument("scenarios", nargs="*", metavar="NAME", help="by default all bundled ones")
    given = parser.parse_args(arguments)
    if given.command == "status":
        return 0 if is_made() else 1
    try:
        if not is_made():
            print(f"{make()} modules are compiled: {BUILT}", flush=True)
    except (BuildError, FormError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3 if isinstance(error, NoCompiler) else 2
    return 0 if given.command == "build" else check(given.seeds, given.scenarios)


def check(seeds: int, scenarios: Sequence[str]) -> int:
    """Compare the runs of both builds, and print what differs. Returns the exit status."""
    arguments = ["-P", str(HASHES), "--seeds", str(seeds), *scenarios]
    if not scenarios:
        arguments += ["--drawn", DRAWN]
    kinds = {"interpreted": ROOT, "compiled": BUILT}
    children = {
        kind: subprocess.Popen(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": str(tree)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for kind, tree in kinds.items()
    }
    found = {kind: str(child.communicate()[0]).splitlines() for kind, child in children.items()}
    for kind, child in children.items():
        if child.returncode != 0:
            print(f"error: the {kind} runs ended with {child.returncode}", file=sys.stderr)
            return 2
        print(f"{kind}: {found[kind].pop(0)}")
    pairs = list(zip(found["interpreted"], found["compiled"], strict=True))
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    for interpreted, compiled in differing:
        print(f"interpreted {interpreted}\n   compiled {compiled}")
    print(f"{len(pairs)} runs, {len(differing)} differ")
    return 1 if differing or not pairs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
