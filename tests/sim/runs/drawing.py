"""What scripts that draw scenarios share: choices by a stream of draws, and runs with a report of what they broke."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sim.run import run_scenario
from sim.scenario.model import Scenario
from sim.swarm.groups import signature
from sim.world.streams import Stream

Choice = TypeVar("Choice")
TRANSPORTS = ("stream", "datagram")


def pick(stream: Stream, choices: Sequence[Choice]) -> Choice:
    return choices[stream.below(len(choices))]


def findings(scenario: Scenario, seed: int) -> tuple[str, list[str]]:
    """Run the scenario. Returns its verdict, and the signature of each violation or of the error that ended it."""
    try:
        result = run_scenario(scenario, seed)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "error", [
            signature(type(error).__name__, f"{where.filename.rpartition('/')[2]} {where.name}: {error}")
        ]
    found = dict.fromkeys(signature(each.checker, each.what) for each in result.violations)
    return result.verdict.value, list(found)


def run_all(seeds: Iterable[int], transports: Sequence[str], draw: Callable[[int, str], Scenario]) -> int:
    """Run a drawn scenario for each seed and transport. Prints a line a failure and a summary. Returns the failures."""
    verdicts: Counter[str] = Counter()
    signatures: Counter[str] = Counter()
    for seed in seeds:
        for transport in transports:
            verdict, found = findings(draw(seed, transport), seed)
            verdicts[verdict] += 1
            if found:
                signatures[found[0]] += 1
                print(
                    f"{seed} {transport} {found[0]}" + (f" (+{len(found) - 1})" if found[1:] else ""),
                    flush=True,
                )
    print(
        f"runs: {verdicts.total()}, "
        + ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
    )
    for name, count in signatures.most_common():
        print(f"{count:6} x {name}")
    return signatures.total()


def transports_of(arguments: Sequence[str], default: Sequence[str]) -> Sequence[str]:
    """Returns the transports that the options `--stream`, `--datagram` and `both` name."""
    if "both" in arguments or "--both" in arguments:
        return TRANSPORTS
    return [name for name in TRANSPORTS if f"--{name}" in arguments] or default
