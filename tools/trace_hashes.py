"""Runs bundled scenarios with the code that PYTHONPATH names: `python -P tools/trace_hashes.py --seeds 3 [NAME...]`.

The first line on its standard output counts the modules of replog that are compiled, and those that are not; after it
each run has a line: the scenario, the seed, the verdict and the trace hash. `--drawn A..B` runs these seeds of
`replog sim swarm` too.
"""

from __future__ import annotations

import argparse
import sys

from sim.bundled import bundled_scenarios
from sim.run import run_scenario
from sim.scenario.model import Scenario
from sim.seed_range import Seeds
from sim.swarm.drawing import draw

PACKAGES = ("cluster", "sim", "storage")


def main() -> None:
    """Run each scenario with the seeds from 0 on, and the drawn ones."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--drawn", type=Seeds.parse, metavar="A..B")
    parser.add_argument("scenarios", nargs="*", metavar="NAME")
    asked = parser.parse_args()
    files = [str(module.__file__) for name, module in sys.modules.items() if name.split(".")[0] in PACKAGES]
    compiled = sum(not name.endswith(".py") for name in files)
    print(f"compiled {compiled}, interpreted {len(files) - compiled}", flush=True)
    for name in asked.scenarios or sorted(bundled_scenarios()):
        for seed in range(asked.seeds):
            run(name, name, seed)
    for seed in asked.drawn or ():
        run("swarm", draw(seed).scenario, seed)


def run(name: str, scenario: str | Scenario, seed: int) -> None:
    """Run the scenario, and print its line."""
    result = run_scenario(scenario, seed)
    print(name, seed, result.verdict.value, result.trace_hash, flush=True)


if __name__ == "__main__":
    main()
