"""The sum of a campaign: failures by signature, starved runs apart, and the points that no run reached."""

from __future__ import annotations

import pytest

from sim.buggify.points import POINTS as BUGGIFY_POINTS
from sim.checkers.history import RETENTION
from sim.seed_range import Seeds
from sim.sometimes.points import POINTS
from sim.swarm.campaign import Campaign
from sim.swarm.groups import signature, signature_of

SEEDS = Seeds(first=0, end=100)


def row(seed: int, verdict: str = "held", **more: object) -> dict[str, object]:
    return {"seed": seed, "verdict": verdict, "replay": f"replay {seed}", "simulated_ms": 1_000} | more


def violated(seed: int, what: str, checker: str = "history") -> dict[str, object]:
    return row(seed, "violated", violations=[{"checker": checker, "at_ms": 1.0, "what": what}])


def campaign(*rows: dict[str, object]) -> Campaign:
    found = Campaign(SEEDS)
    for each in rows:
        found.add(each)
    return found


@pytest.mark.parametrize(
    ("what", "plain"),
    [
        ("t-0: b'x/17' at offset 3 is lost", "PARTITION: VALUE at offset N is lost"),
        ("u-12: 'producer-1/4...' is lost", "PARTITION: VALUE is lost"),
        ("in incarnation ae7d708c3ae360a1c262adf02f298916", "in incarnation ID"),
        ("only [1, 2] are in sync after 60.5 s", "only [N…] are in sync after N s"),
        ("only [1, 2, 3] are in sync after 7 s", "only [N…] are in sync after N s"),
    ],
)
def test_a_signature_has_no_numbers_and_no_values(what: str, plain: str) -> None:
    assert signature("history", what) == f"history: {plain}"


def test_the_signature_of_a_run_is_that_of_its_first_violation_or_of_its_error() -> None:
    assert signature_of(violated(1, "at 3")) == "history: at N"
    assert signature_of(row(1, "error", error="AssertionError: (3, 4)")) == "error: AssertionError: (N…)"
    assert signature_of(row(1)) == ""


def test_failures_of_one_kind_are_one_group_with_the_smallest_seed() -> None:
    found = Campaign(SEEDS)
    news = [
        found.add(each)
        for each in (violated(9, "t-0 lost 3"), violated(4, "t-1 lost 5"), violated(6, "torn"))
    ]
    assert news == [True, False, True]
    lines = found.lines()
    assert lines[1:3] == ["     2 x history: PARTITION lost N", "         seed 4: replay 4"]
    assert lines[3] == "     1 x history: torn"


def test_starved_runs_are_counted_apart_and_cover_nothing() -> None:
    starved = row(1, "starved", starved_because="3 of 70 sends succeeded", points=["retention"])
    found = campaign(row(0, points=["truncated"]), starved)
    assert "     1 x starved, and counted for nothing: N of N sends succeeded" in found.lines()
    assert "truncated" not in found.never() and "retention" in found.never()
    assert len(found.never()) == len(POINTS) - 1


def test_runs_whose_losses_needed_an_excuse_are_counted_by_reason() -> None:
    disks = "every in-sync replica lost it with its un-synced writes"
    found = campaign(
        row(0, excused={RETENTION: 40, disks: 2}), row(1, excused={disks: 1}), row(2, excused={RETENTION: 2})
    )
    assert f"     2 x acknowledged records lost, and excused: {disks}" in found.lines()
    assert not any(RETENTION in line for line in found.lines())
    assert found.as_json(0.0)["excused"] == 2


def test_the_parts_of_the_runs_that_starved_or_had_an_excuse_are_told() -> None:
    disks = "every in-sync replica lost it with its un-synced writes"
    runs = [row(seed) for seed in range(37)] + [
        row(40, "starved"),
        *(row(n, excused={disks: 1}) for n in (50, 51)),
    ]
    assert "starved 2.5% of the runs, excused 5.0%" in campaign(*runs).lines()
    assert not any("of the runs" in line for line in campaign(row(0)).lines())


def test_the_first_line_counts_verdicts_and_profiles() -> None:
    found = campaign(row(0, profile="within"), row(1, profile="edge"), violated(2, "x"))
    assert found.lines()[0] == (
        "swarm, seeds 0..100: 3 runs: 2 held, 1 violated (1 edge, 1 unknown, 1 within)"
    )
    found.is_interrupted = True
    assert "3 of 100 runs done" in found.lines()[0]


def test_buggify_points_that_never_fired_are_named() -> None:
    found = campaign(
        row(0, buggify={"timer-late": 3, "step-slow": 0}), row(1), row(2, buggify={"timer-late": 1})
    )
    lines = found.lines()
    assert f"buggify points in 2 runs: 1 of {len(BUGGIFY_POINTS)} fired" in lines
    assert f"  never: step-slow: {BUGGIFY_POINTS['step-slow'].what}" in lines
    assert "timer-late" not in found.never_fired()
    summary = found.as_json(0.0)
    assert summary["buggified"] == 2
    assert summary["buggify"] == dict.fromkeys(BUGGIFY_POINTS, 0) | {"timer-late": 4}


def test_a_campaign_without_buggify_points_says_nothing_of_them() -> None:
    assert not any("buggify" in line for line in campaign(row(0)).lines())


def test_a_seed_counts_once() -> None:
    found = campaign(row(0))
    with pytest.raises(AssertionError):
        found.add(row(0))
    with pytest.raises(AssertionError):
        found.add(row(100))


@pytest.mark.parametrize(
    ("verdicts", "interrupted", "status"),
    [
        (["held", "starved"], False, 0),
        (["held", "violated", "error"], True, 1),
        (["held", "error"], False, 2),
        (["starved"], False, 3),
        (["held"], True, 3),
        ([], True, 3),
    ],
)
def test_the_status_is_that_of_the_gravest_verdict(
    verdicts: list[str], interrupted: bool, status: int
) -> None:
    found = Campaign(SEEDS)
    for seed, verdict in enumerate(verdicts):
        found.add(violated(seed, "x") if verdict == "violated" else row(seed, verdict, error="e"))
    found.is_interrupted = interrupted
    assert found.status() == status


def test_the_summary_has_the_same_numbers() -> None:
    summary = campaign(row(0, points=["truncated"]), violated(5, "t-0 lost 3")).as_json(1.5)
    assert {key: summary[key] for key in ("runs", "held", "violated", "starved", "errors", "excused")} == {
        "runs": 2, "held": 1, "violated": 1, "starved": 0, "errors": 0, "excused": 0,
    }  # fmt: skip
    assert summary["failures"] == [
        {"signature": "history: PARTITION lost N", "count": 1, "seed": 5, "replay": "replay 5"}
    ]
    assert (summary["simulated_s"], summary["cpu_s"]) == (2.0, 1.5)
    points = summary["sometimes"]
    assert isinstance(points, dict) and points["truncated"] == 1 and set(points) == set(POINTS)
