"""Scenarios as data: what is left after an edit can be run, and reads as a person would write it."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from sim.scenario.loading import parse_scenario
from sim.shrink.data import Data, apply, as_yaml, deleted, neat, read_data, scenario_of, tidied
from sim.shrink.events import details
from sim.shrink.families import are_alike
from sim.shrink.report import Size
from sim.shrink.search import Failing
from sim.shrink.surroundings import kinds, partitions, points
from sim.shrink.telling import five_lines
from sim.shrink.trial import Outcome
from sim.swarm.drawing import draw

SMALL: Data = {
    "scenario": "small",
    "topics": {"t": {"partitions": 3, "replicas": 3, "config": {}}},
    "producers": [{"topic": "t", "rate": "50/s", "acks": "all"}],
    "consumers": [],
    "steps": [{"at": "3s", "kill": "leader(t/2)", "within": "30s"}],
}


def test_a_scenario_may_come_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = "scenario: s\nduration: 5s\ntopics: {t: {}}\n"
    writer = Thread(target=pipe.write_text, args=(text,))
    writer.start()
    assert read_data(pipe) == {"scenario": "s", "duration": "5s", "topics": {"t": {}}}
    writer.join()


def test_the_file_holds_the_same_scenario() -> None:
    for seed in range(5):
        drawn = draw(seed)
        assert parse_scenario(as_yaml(drawn.parts, ["a", "b"])) == drawn.scenario


def test_what_has_its_default_is_left_out_of_the_file() -> None:
    found = neat(SMALL)
    assert scenario_of(found) == scenario_of(SMALL)
    assert found == {
        "scenario": "small",
        "topics": {"t": {"partitions": 3}},
        "producers": [{"topic": "t"}],
        "steps": [{"at": "3s", "kill": "leader(t/2)"}],
    }


def test_steps_on_what_is_no_longer_there_go_with_it() -> None:
    found = tidied(SMALL | {"topics": {"t": {"partitions": 1}}})
    assert found is not None and found["steps"] == []


def test_replicas_go_with_their_brokers() -> None:
    found = tidied(SMALL | {"cluster": {"brokers": 1}})
    assert found is not None and found["topics"]["t"]["replicas"] == 1


def test_data_that_no_deletion_mends_cannot_be_run() -> None:
    assert tidied(SMALL | {"cluster": {"settings": {"nonsense": 1}}}) is None
    assert tidied({"scenario": "small"}) is None


def test_steps_on_a_partition_that_goes_mean_the_first_one_instead() -> None:
    failing = Failing(data=SMALL, seed=0, outcome=Outcome(signature="truncation: N"))
    changes = partitions(failing, topic="t")[0]
    assert [(change.path, change.value) for change in changes] == [
        (("topics", "t", "partitions"), 1),
        (("steps", 0, "kill"), "leader(t/0)"),
    ]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("truncation: a", "truncation: b", True),
        ("truncation: a", "history: lost", True),
        ("truncation: a", "calls: twice", False),
        ("error: AssertionError: N", "error: AssertionError: N", True),
        ("error: AssertionError: N", "error: KeyError: N", False),
        ("error: AssertionError: N", "truncation: a", False),
        ("", "", False),
    ],
)
def test_failures_of_one_family_are_alike(first: str, second: str, expected: bool) -> None:
    assert are_alike(first, second) is are_alike(second, first) is expected


def test_a_story_has_five_lines_the_last_fault_and_the_failure_among_them() -> None:
    story = (
        "     1.000 s  controller   broker 1 is unfenced",
        "     3.000 s               kill broker-1, the leader(t/2)",
        "     3.500 s  controller   broker 1 is fenced",
        "     3.600 s  broker-2     t-2: leads epoch 1 from offset 4",
        "     3.700 s               VIOLATED truncation: t-2: lost",
        "     3.800 s  broker-3     too late",
    )
    failing = Failing(data=SMALL, seed=0, outcome=Outcome(signature="truncation: N", story=story))
    scenario = scenario_of(SMALL)
    assert scenario is not None
    assert five_lines(failing, scenario) == [
        "3 brokers, topic t with 3 partitions of 3 replicas; 1 producer and 0 consumers",
        *(line.strip() for line in story[1:5]),
    ]


def test_a_story_takes_no_end_of_a_fault_and_no_note_for_the_last_fault() -> None:
    kill = "     3.000 s               kill broker-1, the leader(t/2)"
    others = (
        "unclog broker 2 <-> others",
        "broker-3 goes on",
        "heal First",
        "First is broker-2, leader(t/0)",
    )
    story = (kill, *(f"     4.000 s               {what}" for what in others))
    failing = Failing(
        data=SMALL, seed=0, outcome=Outcome(signature="truncation: N", reason="lost", story=story)
    )
    scenario = scenario_of(SMALL)
    assert scenario is not None
    assert five_lines(failing, scenario)[1:] == [kill.strip(), "lost"]


def test_seekers_and_admins_count_as_clients() -> None:
    data = SMALL | {"seekers": [{"topic": "t", "clients": 2}], "admins": [{}]}
    failing = Failing(data=data, seed=0, outcome=Outcome(signature="truncation: N", reason="lost", story=()))
    scenario = scenario_of(data)
    assert scenario is not None
    assert five_lines(failing, scenario)[0].endswith("; 1 producer, 0 consumers, 2 seekers and 1 admin")
    assert Size.of(failing).clients == 4


def test_buggify_points_go_one_by_one_and_all_at_once() -> None:
    data = SMALL | {"buggify": {"points": ["timer-late", "write-back", "step-slow"]}}
    failing = Failing(data=data, seed=0, outcome=Outcome(signature="truncation: N"))
    left = [apply(data, [edit])["buggify"]["points"] for edit in points(failing)]
    assert left == [["write-back", "step-slow"], ["timer-late", "step-slow"], ["timer-late", "write-back"]]
    assert any("buggify" not in apply(data, [edit]) for edit in kinds(failing))
    assert neat(apply(data, points(failing))) == neat(SMALL)


def test_a_death_inside_a_change_is_tried_without_its_power_loss_and_at_any_change() -> None:
    """A step needs its `keep` or its `log` where it has no meaning without, as a write that is cut short has not."""
    death: dict[str, object] = {"at": "3s", "kill_inside": "broker 1", "job": "compact", "keep": "torn"}
    write: dict[str, object] = {"at": "3s", "partial_write": "broker 1", "log": "t/0", "byte": "0 B"}
    failing = Failing(
        data=SMALL | {"steps": [death, write]}, seed=1, outcome=Outcome(signature="log-shape: x")
    )
    edits = details(failing)
    assert {deleted("steps", 0, key) for key in ("keep", "job")} <= set(edits)
    assert deleted("steps", 1, "log") not in edits
