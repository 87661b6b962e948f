"""Draws the whole scenario of a seed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import final

from ruamel.yaml import YAML

from sim.buggify.points import POINTS
from sim.scenario.checks import check_scenario
from sim.scenario.model import Scenario
from sim.swarm.choices import Choices, Part
from sim.swarm.plans.ground import Ground, has_unclean
from sim.swarm.plans.isr_chains import may_be_unclean
from sim.swarm.plans.plan import Strike, draw_plan, steps_of
from sim.swarm.plans.shapes import AIMED, APART, AT_WORK, draw_shape
from sim.swarm.profiles import Profile, draw_profile, over_budget
from sim.swarm.topology import draw_cluster, draw_network, very_slow
from sim.swarm.workload import WIDE, draw_workload
from storage.draws import Draws

NAME = "swarm"
# No aimed fault strikes before; faults with a time of their own come a little later. In most seeds clients are at work
# after half a second. Where datagrams are lost, a broker may need seconds to register.
_WARM_UP_MS, _LOSSY_WARM_UP_MS = 1_500, 3_000
# How long faults strike after that.
_FAULTS_MS = (4_000, 7_000, 7_000, 10_000, 10_000, 18_000)
_CONVERGE = "60s"
# Chains of faults are what finds most of the rare mistakes. In so many of a hundred seeds they strike alone, in a
# cluster with followers to aim at, and in less time: such a seed costs less.
_AIMED_PERCENT = 50
_AIMED_FAULTS_MS = (5_000, 7_000, 9_000)
_AIMED_REPLICAS = 3
# In so many of a hundred of the other seeds a topic may be deleted, and created again.
_DELETABLE_PERCENT = 40
# In so many of a hundred seeds buggify points are on, and of those points each in so many of a hundred. Strays are on
# more often: where they are refused they change nothing, so they hide nothing that other points would show.
_BUGGIFIED_PERCENT = 50
_POINT_PERCENT = 25
_STRAY_PERCENT = 70
# So are those that nothing else brings about: refused proposals, nodes whose limits of calls are reached, frames in
# pieces, sets that wait for their checks, large records, and work that takes more than a step.
_OFTEN_PERCENTS = {
    "proposal-of-an-earlier-life": 60,
    "few-places": 50,
    "frames-in-pieces": 60,
    "small-frames": 40,
    "little-work": 50,
    "little-is-large": 80,
    "few-logs-a-step": 50,
    "few-segments-a-step": 60,
    "few-batches-a-step": 60,
    "short-searches": 40,
    "small-compactions": 60,
    "reads-few-records": 45,
    "leftover-file": 50,
    "leftover-swap": 70,
    "snapshots-gone": 40,
}
# Three leaders that follow each other wait for three sessions that end.
_APART_LONGER_MS = 4_000
# In so many of a hundred of those seeds each topic, each producer and the network is such that every leader gets
# records that the others lack and that stay for a while.
_PRODUCTIVE_PERCENT = 80
# The point that tells the end of a job late as a role begins.
_OVERTAKEN = "job-overtaken"
# How often a kind of job begins.
_INTERVALS = {
    "flush": "log.flush.scheduler.interval.ms",
    "compact": "log.cleaner.backoff.ms",
    "checkpoint": "log.flush.offset.checkpoint.interval.ms",
}
# The properties because of which there is always something to flush by its time, or to compact.
_BUSY: Mapping[str, Part] = {
    "flush": {"flush.ms": 10},
    "compact": {"cleanup.policy": "compact", "segment.ms": 200, "min.cleanable.dirty.ratio": "0.01"},
}
# A producer that goes on at a leader as long as that takes its records, and at the next one as soon as it is refused:
# both get records within a few hundredths of a second.
_UNGUARDED: Part = {
    "idempotent": False, "acks": 1, "clients": 1, "rate": "40/s", "size": "40 B", "batch": "400 B", "linger": "2ms",
}  # fmt: skip
# One whose sequences the logs know, and that leaves room for the others.
_BESIDE: Part = {"idempotent": True, "acks": "all", "clients": 1, "rate": "5/s"}
# So many of a hundred seeds of nothing but chains have such producers.
_UNGUARDED_PERCENT = 40
# A worker that flushes each append and makes its checks too may be slower than such clients wait: nothing would come of
# any send, however long the cluster is healed. In so many of a hundred seeds that have drawn both it is the work that
# stays.
_TOO_SLOW_WITH = {"little-work": ("flushes-each", "job-slow", "short-patience")}
_STAYS_PERCENT = 60


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A drawn scenario: `parts` as its file has it, `scenario` as it is run, and what it was drawn from."""

    seed: int
    profile: Profile
    shape: str
    plan: tuple[Strike, ...]
    parts: Part
    scenario: Scenario

    def as_yaml(self) -> str:
        """Returns the file that `replog sim run` takes."""
        text = StringIO()
        head = (
            f"# Seed {self.seed}: profile {self.profile.value}, shape {self.shape}, {len(self.plan)} faults."
        )
        text.write(head + "\n")
        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = None
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
        yaml.width = 120
        yaml.dump(self.parts, text)
        return text.getvalue()


def draw(
    seed: int, profile: Profile | None = None, only: Collection[str] = (), *, buggify: bool | None = None
) -> Drawn:
    """Draw the scenario of a seed. Without a profile it is drawn too; with `only`, faults of other kinds are left out.

    `buggify` says whether buggify points are on, where that is not drawn. None of these changes another draw. The same
    seed is the same scenario.
    """
    choices = Choices(Draws(seed).child("swarm"))
    chosen = draw_profile(choices) if profile is None else profile
    is_aimed = choices.chance(_AIMED_PERCENT, "aimed")
    quiet = _without_faults(choices, chosen, is_aimed=is_aimed)
    ground = _ground(choices, quiet, chosen, is_aimed=is_aimed)
    shape = draw_shape(
        choices, is_aimed=is_aimed, is_unclean=has_unclean(ground), may_be_unclean=may_be_unclean(ground)
    )
    end_ms = ground.scenario.duration // 1_000
    if shape is APART:
        end_ms += _APART_LONGER_MS
        quiet = _productive(choices.within("apart"), quiet) | {"duration": f"{end_ms}ms"}
        ground = _ground(choices, quiet, chosen, is_aimed=is_aimed)
    if shape is AT_WORK:
        quiet = _at_work(choices.within("at work"), quiet)
        ground = _ground(choices, quiet, chosen, is_aimed=is_aimed)
    if shape is AIMED and choices.chance(_UNGUARDED_PERCENT, "unguarded"):
        quiet = _led_by_anyone(choices.within("unguarded"), quiet)
        ground = _ground(choices, quiet, chosen, is_aimed=is_aimed)
    plan = draw_plan(ground, shape, choices.within("plan"), end_ms, only)
    points = _buggify(choices.within("buggify"), buggify)
    parts = quiet | points
    may_be_late = buggify is None or buggify
    parts = _unhurried(parts, may_be_late=may_be_late) if shape is AT_WORK else _quick_checks(parts)
    parts |= {"steps": steps_of(plan)}
    scenario = Scenario.model_validate(parts)
    _check(scenario, chosen)
    return Drawn(
        seed=seed, profile=chosen, shape=shape.name, plan=tuple(plan), parts=parts, scenario=scenario
    )


def _ground(choices: Choices, quiet: Part, profile: Profile, *, is_aimed: bool) -> Ground:
    base = Scenario.model_validate(quiet)
    return Ground(scenario=base, profile=profile, lasting=_lasting(choices, base, is_aimed=is_aimed))


def _productive(choices: Choices, quiet: Part) -> Part:
    """Returns the parts of a scenario in which leaders that are alone get records, of which retention deletes none.

    What a new leader lacks makes an idempotent producer wait: its next batch is out of sequence there. What is lost is
    no loss for a producer that asks for no acknowledgement; of a dead leader only its broken stream tells it.
    """
    quiet = _on_streams(choices, quiet)
    topics, producers = quiet["topics"], quiet["producers"]
    assert isinstance(topics, dict) and isinstance(producers, list), quiet
    alone = {"min.insync.replicas": 1, "retention.ms": -1, "cleanup.policy": "delete"}
    return quiet | {
        "topics": {
            name: topic | {"config": topic.get("config", {}) | alone}
            if choices.chance(_PRODUCTIVE_PERCENT, f"topic {name}")
            else topic
            for name, topic in topics.items()
        },
        "producers": _mostly_with(choices, producers, {"idempotent": False, "acks": 0}),
    }


def _mostly_with(choices: Choices, producers: list[Part], promised: Part) -> list[Part]:
    """Returns the producers, of which most ask for no more than that."""
    return [
        producer | promised if choices.chance(_PRODUCTIVE_PERCENT, f"producer {number}") else producer
        for number, producer in enumerate(producers)
    ]


def _with_sequences(choices: Choices, producers: list[Part]) -> list[Part]:
    """Returns the producers, and in half of the seeds one with sequences: else a log that is cut may know of none."""
    return [*producers, producers[0] | _BESIDE] if choices.chance(50, "beside") else producers


def _on_streams(choices: Choices, quiet: Part) -> Part:
    """Returns the parts of a scenario whose network mostly has streams, on which nothing is lost or comes twice."""
    network = quiet["network"]
    assert isinstance(network, dict), quiet
    if not choices.chance(_PRODUCTIVE_PERCENT, "streams"):
        return quiet
    kept = {key: value for key, value in network.items() if key != "duplicates"}
    return quiet | {"network": kept | {"transport": "stream"}}


def _at_work(choices: Choices, quiet: Part) -> Part:
    """Returns the parts of a scenario in which one kind of job is always at work on logs that grow: flushes by their
    time, compactions or checkpoints.

    Most producers ask for no more than the leader's word, so a leader that is not the present one gets records too.
    """
    quiet = _on_streams(choices, quiet)
    cluster, topics, producers = quiet["cluster"], quiet["topics"], quiet["producers"]
    assert isinstance(cluster, dict) and isinstance(topics, dict) and isinstance(producers, list), quiet
    kind = choices.pick(("flush", "flush", "flush", "compact", "checkpoint"), "kind")
    if kind in _BUSY:
        topics = {name: _busy(topic, kind) for name, topic in topics.items()}
    bounds = (10, 40) if kind == "flush" else (50, 200)
    often = {_INTERVALS[kind]: choices.between(*bounds, "interval")}
    drawn = [
        _working(choices.within(f"producer {number}"), producer, kind)
        for number, producer in enumerate(producers)
    ]
    return quiet | {
        "cluster": cluster | {"jobs": {kind: very_slow(choices)}, "settings": cluster["settings"] | often},
        "topics": topics,
        "producers": _with_sequences(choices, drawn),
    }


def _led_by_anyone(choices: Choices, quiet: Part) -> Part:
    """Returns the parts of a scenario in which whoever leads appends what it gets: for a moment, or without followers.

    Records of short epochs are what chains of leaders are about.
    """
    topics, producers = quiet["topics"], quiet["producers"]
    assert isinstance(topics, dict) and isinstance(producers, list), quiet
    return quiet | {
        "topics": {
            name: topic | {"config": topic.get("config", {}) | {"min.insync.replicas": 1}}
            for name, topic in topics.items()
        },
        "producers": _with_sequences(
            choices, _mostly_with(choices, producers, {"idempotent": False, "acks": 1})
        ),
    }


def _working(choices: Choices, producer: Part, kind: str) -> Part:
    """Returns a producer, mostly one that is content with the word of whoever leads.

    Compaction needs keys; where a log is to be cut, they would leave some partitions without records.
    """
    plain = {key: value for key, value in producer.items() if key not in ("keys", "tombstones")}
    kept = {"compact": producer | {"keys": 8}, "flush": plain}.get(kind, producer)
    return kept | _UNGUARDED if choices.chance(_PRODUCTIVE_PERCENT, "unguarded") else kept


def _busy(topic: Part, kind: str) -> Part:
    """Returns a topic on whose logs there is work of that kind, whatever other properties it has.

    One that is flushed is not compacted: what a compaction writes is synced whatever a flush knows.
    """
    config, partitions = topic["config"], topic["partitions"]
    assert isinstance(config, dict) and isinstance(partitions, int), topic
    left_out = ("flush.messages", "cleanup.policy") if kind == "flush" else ("flush.messages",)
    kept = {key: value for key, value in config.items() if key not in left_out}
    # Of many partitions each has hardly a record by the time that one is cut.
    few = {"partitions": min(partitions, 2)} if kind == "flush" else {}
    return topic | {"config": kept | _BUSY[kind]} | few


def _without_faults(choices: Choices, profile: Profile, *, is_aimed: bool) -> Part:
    least, lasting_ms = (_AIMED_REPLICAS, _AIMED_FAULTS_MS) if is_aimed else (1, _FAULTS_MS)
    cluster = draw_cluster(choices.within("cluster"), least_brokers=least)
    brokers, network = cluster["brokers"], draw_network(choices.within("network"))
    assert isinstance(brokers, int), brokers
    is_datagram = network["transport"] == "datagram"
    warm_up_ms = _LOSSY_WARM_UP_MS if is_datagram and "loss" in network else _WARM_UP_MS
    return {
        "scenario": NAME,
        "warm_up": f"{warm_up_ms}ms",
        "duration": f"{warm_up_ms + choices.pick(lasting_ms, 'end')}ms",
        "converge": _CONVERGE,
        # Whether the moment of an aimed fault comes cannot be known when it is drawn.
        "strict": False,
        "excuses": profile.excuses,
        "canaries": True,
        "cluster": cluster,
        "network": network,
    } | draw_workload(
        choices.within("workload"), brokers, profile, least_replicas=least, may_be_wide=not is_aimed,
        is_lossy=is_datagram,
    )  # fmt: skip


def _buggify(choices: Choices, is_on: bool | None) -> Part:
    """Returns the buggify points of a scenario; nothing if they are off."""
    if not (choices.chance(_BUGGIFIED_PERCENT, "is on") if is_on is None else is_on):
        return {}
    percents = {
        name: _STRAY_PERCENT if point.port == "strays" else _OFTEN_PERCENTS.get(name, _POINT_PERCENT)
        for name, point in POINTS.items()
    }
    drawn = [name for name, percent in percents.items() if choices.chance(percent, name)]
    for name, others in _TOO_SLOW_WITH.items():
        if name in drawn and any(each in drawn for each in others):
            without = others if choices.chance(_STAYS_PERCENT, "stays") else (name,)
            drawn = [each for each in drawn if each not in without]
    return {"buggify": {"points": drawn}} if drawn else {}


def _quick_checks(parts: Part) -> Part:
    """Returns the parts of a scenario without slow jobs, where produced sets wait for checks behind other jobs."""
    buggify, cluster = parts.get("buggify", {}), parts["cluster"]
    assert isinstance(buggify, dict) and isinstance(cluster, dict), parts
    if "little-work" not in buggify.get("points", ()):
        return parts
    return parts | {"cluster": {key: value for key, value in cluster.items() if key != "jobs"}}


def _unhurried(parts: Part, *, may_be_late: bool) -> Part:
    """Returns the parts of a scenario whose slow job stays: no produced set waits for checks behind it.

    A job that is told late as a role begins is what these scenarios are about, unless buggify points are refused.
    """
    buggify = parts.get("buggify", {})
    assert isinstance(buggify, dict), parts
    points = [each for each in buggify.get("points", ()) if each not in ("little-work", _OVERTAKEN)]
    points += [_OVERTAKEN] if may_be_late else []
    left = {key: part for key, part in parts.items() if key != "buggify"}
    return left | ({"buggify": {"points": points}} if points else {})


def _lasting(choices: Choices, scenario: Scenario, *, is_aimed: bool) -> tuple[str, ...]:
    """Returns the topics that no step of this seed deletes, so that faults may wait for their leaders.

    Where nothing but aimed faults strikes, these are all that exist.
    """
    return tuple(
        name
        for name, topic in scenario.topics.items()
        if topic.exists
        and name != WIDE
        and (is_aimed or not choices.chance(_DELETABLE_PERCENT, f"{name} may be deleted"))
    )


def _check(scenario: Scenario, profile: Profile) -> None:
    findings = list(check_scenario(scenario))
    assert not findings, findings
    beyond = list(over_budget(scenario, profile))
    assert not beyond, beyond
