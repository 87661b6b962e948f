"""Draws scenarios of producers and a consumer over a bad network: `python -m tests.sim.runs.drawn_clients FROM TO`.

Prints each violation and, last, the number of runs by verdict. TO is exclusive; `--stream` draws streams instead of
datagrams.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sim.scenario.model import Scenario
from sim.world.streams import Stream
from storage.draws import Draws
from tests.sim.runs.drawing import pick, run_all, transports_of

FIRST_STEP_MS, LAST_STEP_MS = 2_500, 11_500

VERBS = ("kill", "pause", "cut", "slow", "lose", "power", "isolate")
NODES = ("leader(t/0)", "follower(t/0)", "broker 1", "broker 2", "broker 3")


def drawn(seed: int, transport: str = "datagram") -> Scenario:
    """Return the scenario of that seed: same seed, same scenario."""
    stream = Stream(Draws(seed), "drawn", transport)
    steps: list[dict[str, str]] = []
    at_ms = FIRST_STEP_MS
    while at_ms < LAST_STEP_MS:
        steps.append({"at": f"{at_ms}ms"} | _step(stream))
        at_ms += pick(stream, (300, 1000, 2500))
    partitions, min_isr = pick(stream, (1, 1, 2, 4)), pick(stream, (1, 2))
    network: dict[str, object] = {"transport": transport, "loss": f"{pick(stream, (0, 1, 5))}%"}
    if transport == "datagram":
        network["duplicates"] = f"{pick(stream, (0, 5, 20, 50))}%"
        network["spread"] = f"{pick(stream, (800, 5000, 20000))}us"
    clients, rate = pick(stream, (1, 2)), pick(stream, (50, 200))
    config = {"min.insync.replicas": min_isr, "segment.bytes": 16384}
    return Scenario.model_validate(
        {
            "scenario": "drawn",
            "duration": "12s",
            "network": network,
            "topics": {"t": {"partitions": partitions, "replicas": 3, "config": config}},
            "producers": [{"topic": "t", "clients": clients, "rate": f"{rate}/s"}],
            "consumers": [{"topic": "t"}],
            "steps": steps,
        }
    )


def _step(stream: Stream) -> dict[str, str]:
    verb, node = pick(stream, VERBS), pick(stream, NODES)
    short, long = f"{pick(stream, (200, 1000, 2500))}ms", f"{pick(stream, (1000, 3000))}ms"
    down = {"down": f"{pick(stream, (300, 1000, 3000))}ms"}
    match verb:
        case "kill":
            return {"kill": node} | down
        case "power":
            return {"power": node, "keep": "all"} | down
        case "cut":
            return {"cut": f"{node} -> {pick(stream, ('clients', 'others'))}", "for": short}
        case "slow":
            by = f"{pick(stream, (20, 200, 800))}ms"
            return {"slow": _link(stream, node), "by": by, "for": long}
        case "lose":
            return {"lose": _link(stream, node), "share": f"{pick(stream, (10, 40))}%", "for": long}
        case _:
            return {verb: node, "for": short}


def _link(stream: Stream, node: str) -> str:
    return pick(stream, (f"clients -> {node}", f"{node} -> clients", f"{node} <-> others"))


def main(arguments: Sequence[str]) -> None:
    first, end = (int(each) for each in arguments if each.isdigit())
    run_all(range(first, end), transports_of(arguments, ["datagram"]), drawn)


if __name__ == "__main__":
    main(sys.argv[1:])
