"""Draws the machines of a scenario: how many, their disks and clocks, how long jobs take, and the network."""

from __future__ import annotations

from sim.scenario.steps import BROKER_JOBS
from sim.swarm.choices import Choices, Part
from sim.swarm.settings import draw_settings

BROKERS = (1, 2, 3, 3, 3, 3, 4, 5)
_FIVE_MINUTES_MS = 300_000
_MOST_LOST_PERCENT = 5


def draw_cluster(choices: Choices, *, least_brokers: int = 1) -> Part:
    """Returns the `cluster` of a scenario, with that many brokers or more."""
    cluster: Part = {
        "brokers": max(least_brokers, choices.pick(BROKERS, "brokers")),
        "directories": choices.pick((1, 2, 2, 2, 3), "directories"),
        "settings": draw_settings(choices.within("settings")),
    }
    if choices.chance(60, "clocks"):
        cluster["clocks"] = _clocks(choices.within("clocks"))
    if choices.chance(50, "disk"):
        cluster["disk"] = _disk(choices.within("disk"))
    if choices.chance(40, "jobs"):
        cluster["jobs"] = _jobs(choices.within("jobs"))
    elif choices.chance(25, "a very slow job"):
        cluster["jobs"] = {choices.pick(("checkpoint", "compact"), "kind"): very_slow(choices)}
    return cluster


def _clocks(choices: Choices) -> Part:
    clocks: Part = {}
    if choices.chance(70, "offset"):
        clocks["offset"] = f"{choices.scale(50, _FIVE_MINUTES_MS, 'by')}ms"
    if choices.chance(50, "drift"):
        clocks["drift"] = choices.scale(200, 50_000, "rate")
    return clocks


def _disk(choices: Choices) -> Part:
    """Returns the time that calls on a disk take, from that of flash to that of a busy spinning disk."""
    return {
        "call": f"{choices.scale(1, 200, 'call')}us",
        "sync": f"{choices.scale(50, 8_000, 'sync')}us",
        "mebibyte": f"{choices.scale(200, 10_000, 'mebibyte')}us",
    }


def _jobs(choices: Choices) -> Part:
    return {
        kind: f"{choices.scale(1, 400, kind)}ms"
        for kind in BROKER_JOBS
        if choices.chance(50, f"{kind} is slow")
    }


def very_slow(choices: Choices) -> str:
    """Returns the time of a job in which a log may be cut, deleted or appended to."""
    return f"{choices.between(100, 400, 'takes')}ms"


def draw_network(choices: Choices) -> Part:
    """Returns the `network` of a scenario: half of the seeds have streams, half have datagrams."""
    transport = choices.pick(("stream", "datagram"), "transport")
    network: Part = {"transport": transport}
    if transport == "datagram" and choices.chance(25, "disorder"):
        # Messages overtake each other, and come twice.
        doubled, spread = (
            choices.between(10, 30, "doubled in disorder"),
            choices.between(5, 40, "disorder of"),
        )
        return network | {"loss": "3%", "duplicates": f"{doubled}%", "spread": f"{spread}ms"}
    if choices.chance(50, "delays"):
        network["latency"] = f"{choices.scale(50, 5_000, 'latency')}us"
        network["spread"] = f"{choices.scale(100, 40_000, 'spread')}us"
    if choices.chance(50, "loss"):
        # It goes on when everything is healed, and the cluster must agree all the same; faults lose much more.
        network["loss"] = f"{choices.scale(1, _MOST_LOST_PERCENT, 'lost')}%"
    if transport == "datagram" and choices.chance(60, "duplicates"):
        network["duplicates"] = f"{choices.scale(1, 30, 'doubled')}%"
    return network
