"""A failure in five lines: what is there, the three moments that matter most, and what is wrong."""

from __future__ import annotations

from sim.scenario.model import Scenario
from sim.shrink.search import Failing
from sim.told import is_fault

_MOMENTS = 3
_VIOLATED = "VIOLATED "
# Where the text of a line of the story begins; before it are the time and the name of the node.
_WHO, _WHAT = slice(14, 26), 27


def five_lines(failing: Failing, scenario: Scenario) -> list[str]:
    """Returns the story: the set-up, the last fault and the last changes before the failure in order, and the failure.

    A run in which less happened has fewer lines.
    """
    lines = list(failing.outcome.story)
    end = next(
        (number for number, line in enumerate(lines) if line[_WHAT:].startswith(_VIOLATED)), len(lines)
    )
    before = lines[:end]
    faults = [number for number, line in enumerate(before) if _is_fault(line)]
    changes = [number for number in range(end) if number not in faults and before[number][_WHO].strip()]
    chosen = faults[-1:] + changes[-(_MOMENTS - len(faults[-1:])) :]
    assert len(chosen) <= _MOMENTS, chosen
    last = lines[end].strip() if end < len(lines) else failing.outcome.reason
    return [_setting(scenario), *(lines[number].strip() for number in sorted(chosen)), last]


def _is_fault(line: str) -> bool:
    """Whether a line of the story is about a fault that begins: the world tells it, not a node."""
    return not line[_WHO].strip() and is_fault(line[_WHAT:])


def _setting(scenario: Scenario) -> str:
    """Returns who takes part."""
    brokers = _counted(scenario.cluster.brokers, "broker")
    topics = ", ".join(
        f"topic {name} with {_counted(topic.partitions, 'partition')} of {_counted(topic.replicas, 'replica')}"
        for name, topic in scenario.topics.items()
    )
    counts = client_counts(scenario)
    # Few scenarios have seekers and admins.
    clients = [
        _counted(count, what) for what, count in counts.items() if count or what in ("producer", "consumer")
    ]
    return f"{brokers}, {topics}; {', '.join(clients[:-1])} and {clients[-1]}"


def client_counts(scenario: Scenario) -> dict[str, int]:
    """Returns how many clients of each kind the scenario has."""
    return {
        "producer": sum(model.clients for model in scenario.producers),
        "consumer": sum(model.clients for model in scenario.consumers),
        "seeker": sum(model.clients for model in scenario.seekers),
        "admin": sum(model.clients for model in scenario.admins),
    }


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
