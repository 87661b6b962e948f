"""Hypothesis strategies for faults and whole scenarios. What they draw shrinks to fewer and milder faults.

A fault is a step of a scenario file, as a dict; `docs/scenario-keys.md` lists the keys. `scenarios()` puts drawn faults
into a file's form, which `run_scenario` runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from sim.scenario.loading import scenario_of
from sim.scenario.model import Scenario

Fault = dict[str, object]
# Faults strike between these times; the cluster is up by then.
FIRST_MS, LAST_MS = 2_100, 8_000
END_MS = 9_000
TOPIC = "t"


def brokers(count: int = 3) -> st.SearchStrategy[str]:
    """Draw a broker as a step names it: the leader of the topic's first partition, a follower, or a number."""
    return st.sampled_from([f"leader({TOPIC}/0)", *(f"broker {number}" for number in range(1, count + 1))])


def nodes(count: int = 3) -> st.SearchStrategy[str]:
    """Draw a broker or the controller."""
    return st.one_of(brokers(count), st.just("controller"))


def _ms(*choices: int) -> st.SearchStrategy[str]:
    return st.sampled_from([f"{each}ms" for each in choices])


def crashes(count: int = 3) -> st.SearchStrategy[Fault]:
    """Draw an end of a process: a kill, an orderly stop, or a pause."""
    down = _ms(1, 300, 2_500)
    return st.one_of(
        st.fixed_dictionaries({"kill": nodes(count), "down": down}),
        st.fixed_dictionaries({"stop": nodes(count), "down": down}),
        st.fixed_dictionaries({"pause": nodes(count), "for": down}),
    )


def power_losses(count: int = 3) -> st.SearchStrategy[Fault]:
    """Draw a power loss of one machine, or of all, and what survives of un-synced writes."""
    keep = st.sampled_from(["all", "prefix", "torn", "subset", "none"])
    target = st.one_of(nodes(count), st.just("all"))
    return st.fixed_dictionaries({"power": target, "keep": keep, "down": _ms(100, 1_000)})


def torn_writes(count: int = 3) -> st.SearchStrategy[Fault]:
    """Draw a write of the first bytes of a batch only, after which the process dies."""
    byte = st.sampled_from(["0 B", "10 B", "61 B", "100 B"])
    log = st.just(f"{TOPIC}/0")
    return st.fixed_dictionaries(
        {"partial_write": brokers(count), "log": log, "byte": byte, "down": _ms(100, 1_000)}
    )


def network_faults(count: int = 3) -> st.SearchStrategy[Fault]:
    """Draw a node cut off, or a link that loses, delays, holds back, narrows or flips messages, or that hangs up."""
    links = st.sampled_from(["-> others", "<-> others", "-> clients"])
    link = st.builds(lambda node, way: f"{node} {way}", nodes(count), links)
    lasting = _ms(300, 1_500, 4_000)
    return st.one_of(
        st.fixed_dictionaries({"isolate": nodes(count), "for": lasting}),
        st.fixed_dictionaries({"cut": link, "for": lasting}),
        st.fixed_dictionaries({"slow": link, "by": _ms(20, 400), "for": lasting}),
        st.fixed_dictionaries({"lose": link, "share": st.sampled_from(["10%", "40%"]), "for": lasting}),
        st.fixed_dictionaries({"clog": link, "for": lasting}),
        st.fixed_dictionaries({"narrow": link, "to": st.sampled_from(["100KiB", "2KiB"]), "for": lasting}),
        st.fixed_dictionaries({"flip_bits": link, "share": st.sampled_from(["5%", "30%"]), "for": lasting}),
        st.fixed_dictionaries({"hang_up": link}),
    )


def machine_faults(count: int = 3) -> st.SearchStrategy[Fault]:
    """Draw a machine that is slow or whose clock is wrong, a process without descriptors or news of the metadata."""
    lasting = _ms(300, 1_500, 4_000)
    shift = st.sampled_from(["50ms", "-50ms", "5s", "-5s"])
    left = st.sampled_from(["few", "none"])
    return st.one_of(
        st.fixed_dictionaries({"slow_disk": nodes(count), "by": _ms(1, 20), "for": lasting}),
        st.fixed_dictionaries({"hang_disk": nodes(count), "for": lasting}),
        st.fixed_dictionaries({"slow_cpu": nodes(count), "by": _ms(1, 10), "for": lasting}),
        st.fixed_dictionaries({"step_clock": nodes(count), "by": shift}),
        st.fixed_dictionaries({"freeze_clock": nodes(count), "for": lasting, "catches_up": st.booleans()}),
        st.fixed_dictionaries({"lack_descriptors": brokers(count), "left": left, "for": lasting}),
        st.fixed_dictionaries({"lag_metadata": brokers(count), "for": lasting}),
    )


def disk_faults(count: int = 3) -> st.SearchStrategy[Fault]:
    """Draw a disk whose calls fail, for a while or for good, or a sync that fails once. No fault takes durable data."""
    lasting, down = _ms(100, 1_000), _ms(1, 300, 2_500)
    calls = st.sampled_from(["reads", "writes"])
    full = st.sampled_from(["0 B", "300 B", "5KiB"])
    return st.one_of(
        st.fixed_dictionaries({"fail_disk": brokers(count), "calls": calls, "for": lasting}),
        st.fixed_dictionaries(
            {"fail_disk": brokers(count), "error": st.just("full"), "free": full, "for": lasting}
        ),
        st.fixed_dictionaries({"fail_disk": brokers(count), "error": st.just("read-only"), "for": lasting}),
        st.fixed_dictionaries({"fail_sync": brokers(count), "pages": st.just("dirty"), "down": down}),
        st.fixed_dictionaries({"break_disk": brokers(count)}),
    )


def faults(count: int = 3) -> st.SearchStrategy[Fault]:
    """Draw any fault of a cluster of `count` brokers."""
    return st.one_of(
        crashes(count), network_faults(count), power_losses(count), torn_writes(count), machine_faults(count),
        disk_faults(count),
    )  # fmt: skip


def plans(fault: st.SearchStrategy[Fault] | None = None, *, most: int = 6) -> st.SearchStrategy[list[Fault]]:
    """Draw up to `most` faults, each at a time of its own, in their order."""
    times = st.integers(FIRST_MS // 100, LAST_MS // 100)
    timed = st.builds(
        lambda at, what: {"at": f"{100 * at}ms", **what}, times, faults() if fault is None else fault
    )
    return st.lists(timed, max_size=most).map(_in_order)


def _in_order(plan: Sequence[Fault]) -> list[Fault]:
    return sorted(plan, key=lambda step: int(str(step["at"]).removesuffix("ms")))


def scenarios(
    fault: st.SearchStrategy[Fault] | None = None, *, brokers: int = 3, most: int = 6
) -> st.SearchStrategy[Scenario]:
    """Draw a scenario with a topic `t`, one producer, one consumer, and up to `most` faults."""
    return st.builds(
        lambda plan, min_isr, transport: scenario_of(
            {
                "scenario": "drawn",
                "duration": f"{END_MS}ms",
                "converge": "40s",
                "cluster": {"brokers": brokers},
                "network": {"transport": transport},
                "topics": {TOPIC: {"replicas": min(3, brokers), "config": {"min.insync.replicas": min_isr}}},
                "producers": [{"topic": TOPIC, "rate": "30/s"}],
                "consumers": [{"topic": TOPIC}],
                "steps": plan,
            }
        ),
        plans(faults(brokers) if fault is None else fault, most=most),
        st.integers(1, min(2, brokers)),
        st.sampled_from(["stream", "datagram"]),
    )
