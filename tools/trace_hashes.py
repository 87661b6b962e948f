"""Runs bundled scenarios with the code that PYTHONPATH names: `python -P tools/trace_hashes.py --seeds 3 [NAME...]`.

The first line on its standard output counts the modules of replog that are compiled, and those that are not; after it
each run has a line: the scenario, the seed, the verdict and the trace hash.
"""

from __future__ import annotations

import argparse
import sys

from sim.bundled import bundled_scenarios
from sim.run import run_scenario

PACKAGES = ("cluster", "sim", "storage")


def main() -> None:
    """Run each scenario with the seeds from 0 on."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("scenarios", nargs="*", metavar="NAME")
    asked = parser.parse_args()
    files = [str(module.__file__) for name, module in sys.modules.items() if name.split(".")[0] in PACKAGES]
    compiled = sum(not name.endswith(".py") for name in files)
    print(f"compiled {compiled}, interpreted {len(files) - compiled}", flush=True)
    for name in asked.scenarios or sorted(bundled_scenarios()):
        for seed in range(asked.seeds):
            result = run_scenario(name, seed)
            print(name, seed, result.verdict.value, result.trace_hash, flush=True)


if __name__ == "__main__":
    main()
