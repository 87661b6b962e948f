"""Says which steps of a scenario processes can suffer, and why the others are skipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sim.scenario.base import Step
from sim.scenario.disk_steps import DiskStep, HangDisk
from sim.scenario.link_steps import FlipBits, FreezeClock, KillStart, SlowCpu
from sim.scenario.model import NetworkModel, Scenario
from sim.scenario.steps import (
    OF_METHODS,
    BreakDisk,
    Kill,
    KillInside,
    LackDescriptors,
    LagMetadata,
    PartialWrite,
    Power,
    SlowDisk,
    StepClock,
)

_NO_DISK = "the disk is the machine's: it neither fails nor forgets on request"
# Why no step of a class can be done.
_NEVER: Mapping[type[Step], str] = {
    Power: "a killed process loses nothing that it has written: the machine would have to lose power",
    PartialWrite: "nobody outside sees a write in its midst",
    BreakDisk: _NO_DISK,
    SlowDisk: _NO_DISK,
    HangDisk: _NO_DISK,
    StepClock: "all processes have the machine's clock",
    FreezeClock: "all processes have the machine's clock",
    LagMetadata: "a process cannot be kept from reading one kind of message only",
    FlipBits: "a proxy carries bytes and does not know records",
    SlowCpu: "nobody outside sees the steps of a process",
    KillStart: "nobody outside sees the changes that a start makes",
    LackDescriptors: "a process would lack them for its connections, too",
    KillInside: "nobody outside sees a change on a disk in its midst",
}


def why_skipped(step: Step) -> str:
    """Returns why the step cannot be done to processes; empty if it can."""
    if isinstance(step, DiskStep):
        return _NO_DISK
    if any(condition.fact == "joining" for condition in step.when):
        return "nobody outside sees a proposal before the controller has decided"
    if isinstance(step, Kill) and step.point is not None:
        return f"nobody outside sees the moment {step.point!r}"
    if isinstance(step, OF_METHODS) and step.only:
        return "a proxy carries bytes and does not know methods"
    return _NEVER.get(type(step), "")


def what_differs(scenario: Scenario) -> Iterator[str]:
    """Yields what beside its steps a run on processes leaves out of the scenario."""
    network, given = scenario.network, NetworkModel()
    if network.transport != given.transport or network.duplicates:
        yield "network: the proxies carry TCP, which keeps the order and doubles nothing"
    if (network.latency, network.spread) != (given.latency, given.spread):
        yield "network: the latency is the loopback's"
    if scenario.cluster.clocks.offset or scenario.cluster.clocks.drift:
        yield f"cluster.clocks: {_NEVER[StepClock]}"
    if scenario.cluster.jobs:
        yield "cluster.jobs: what a job takes is what it takes"
    if scenario.buggify.points:
        yield "buggify: there are no points in processes"
    for name, topic in scenario.topics.items():
        if "compact" in str(topic.config.get("cleanup.policy", "")):
            yield f"topic {name}: its records are not judged: nobody outside sees what compaction removes"
