"""Bugs that are put into the code for one run, and taken out again."""

from __future__ import annotations

import re
from inspect import Parameter, signature
from pkgutil import resolve_name

import pytest

from sim.bugs import BugError, Replacement, bugs, install, replaced
from sim.bugs.tickets import TICKETS
from sim.bundled import find_scenario
from sim.run import Verdict, run_scenario
from sim.scenario.loading import load_scenario
from storage.draws import Draws
from storage.errors import StorageError


def test_a_replacement_lasts_as_long_as_its_block() -> None:
    original = Draws.below
    planted = Replacement(target="storage.draws:Draws.below", make=lambda original: lambda *arguments: 42)
    with replaced(planted):
        assert Draws(1).below(10, "x") == 42
    assert Draws.below is original


@pytest.mark.parametrize(
    "target",
    [
        "storage.draws:Draws.gone",
        "storage.draws:Gone.below",
        "storage.gone:Draws.below",
        "storage.draws:_MASK",
    ],
)
def test_a_bug_whose_target_is_missing_fails_loudly(target: str) -> None:
    with (
        pytest.raises(BugError, match=r"does not exist|neither a method"),
        replaced(Replacement(target=target, make=lambda f: f)),
    ):
        pass


def test_a_bug_is_not_planted_into_compiled_code() -> None:
    target = Replacement(target="zstandard.backend_c:ZstdCompressor.compress", make=lambda f: f)
    with pytest.raises(BugError, match=r"is compiled.*REPLOG_INTERPRETED=1"), replaced(target):
        pass


def test_an_unknown_bug_names_the_known_ones() -> None:
    with pytest.raises(BugError, match="unknown bug 'nonsense'"), install("nonsense"):
        pass


@pytest.mark.parametrize("name", sorted(bugs()))
def test_each_bug_finds_its_targets_and_restores_them(name: str) -> None:
    targets = [each.target for each in bugs()[name].replacements]
    sound = [resolve_name(target) for target in targets]
    with install(name):
        assert all(resolve_name(target) != before for target, before in zip(targets, sound, strict=True))
    assert [resolve_name(target) for target in targets] == sound


def parameters_of(method: object) -> list[tuple[object, ...]]:
    """Returns name, kind and default of each parameter; the first one of a method has a name of its own."""
    assert callable(method)
    found = [(each.name, each.kind, each.default) for each in signature(method).parameters.values()]
    return [found[0][1:], *found[1:]] if found else []


@pytest.mark.parametrize("name", sorted(bugs()))
def test_each_bug_takes_what_its_original_takes(name: str) -> None:
    for replacement in bugs()[name].replacements:
        original = resolve_name(replacement.target)
        with replaced(replacement):
            planted = resolve_name(replacement.target)
            taken = signature(planted)
        asked = signature(original).parameters.values()
        if any(each.kind is Parameter.VAR_POSITIONAL for each in taken.parameters.values()):
            by_name = {each.name: each for each in asked if each.kind is Parameter.KEYWORD_ONLY}
            taken.bind(*range(len(asked) - len(by_name)), **by_name)
        else:
            assert parameters_of(planted) == parameters_of(original), replacement.target


def test_each_ticket_is_of_a_bug_of_the_catalogue() -> None:
    known = bugs()
    assert [name for name in TICKETS if name not in known] == []
    assert all(known[name].ticket == ticket for name, ticket in TICKETS.items())
    assert all(re.fullmatch(r"(KAFKA|KIP)-[0-9]+", ticket) for ticket in TICKETS.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "checker"),
    [
        ("ack-before-high-watermark", "acknowledged-committed"),
        ("append-called-back-twice", "no-failure"),
        ("append-outlives-leadership", "waits-in-vain"),
    ],
)
def test_a_run_finds_each_bug_of_appends_in_its_scenario(name: str, checker: str) -> None:
    result = run_scenario(bugs()[name].found_by, 7, bug=name)
    assert result.violations[0].checker == checker, result.violations


@pytest.mark.slow
def test_ls13_a_run_finds_the_batch_that_a_cut_keeps_by_its_logs() -> None:
    name = "truncation-keeps-batch"
    result = run_scenario(bugs()[name].found_by, 7, bug=name, stops_early=True)
    assert result.violations[0].checker == "log-state", result.violations


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "checker"),
    [
        ("leader-tells-of-lacking-epochs-only", "in-sync-replicas"),
        ("leader-ignores-lacking-epochs", "divergence-answers"),
        ("leader-keeps-the-silent", "lagging-members"),
        ("fetch-outlives-its-epoch", "waits-in-vain"),
        ("leader-withdraws-superseded", "isr-members"),
        ("leader-keeps-refused-joiner", "proposal-outcomes"),
        ("proposal-follows-the-joiner", "proposed-lives"),
        ("consumer-starts-at-the-end", "consumer-positions"),
        ("consumer-keeps-epoch-after-cut", "consumer-positions"),
        ("controller-elects-unreadable", "fail-over"),
    ],
)
def test_a_run_finds_each_bug_of_fetches_in_its_scenario_and_holds_without_it(
    name: str, checker: str
) -> None:
    scenario = bugs()[name].found_by
    result = run_scenario(scenario, 1, bug=name, stops_early=True)
    assert result.violations[0].checker == checker, result.violations
    assert run_scenario(scenario, 1).verdict is Verdict.HELD


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_c2_a_run_on_streams_finds_the_producer_that_writes_twice(seed: int) -> None:
    name = "producer-counts-unanswered-only"
    scenario = load_scenario(find_scenario(bugs()[name].found_by))
    assert scenario.network.transport == "stream"
    result = run_scenario(scenario, seed, bug=name)
    # The second sequence is seen as it leaves; the log has the record twice from then on.
    assert result.violations[0].checker == "second-sequence", result.violations
    found = [each.what for each in result.violations if each.checker == "history"]
    assert any("of an idempotent producer is at " in what for what in found), result.violations


@pytest.mark.slow
def test_c3_a_run_on_datagrams_finds_the_producer_that_forgets_its_doubt() -> None:
    assert load_scenario(find_scenario("bad-network")).network.transport == "datagram"
    result = run_scenario("bad-network", 3, bug="producer-forgets-doubt", stops_early=True)
    assert {violation.checker for violation in result.violations} == {"second-sequence"}, result.violations
    assert run_scenario("bad-network", 3).verdict is Verdict.HELD


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_c4_a_run_on_datagrams_finds_the_producer_that_believes_old_news(seed: int) -> None:
    result = run_scenario("bad-network", seed, bug="producer-believes-old-news", stops_early=True)
    assert {violation.checker for violation in result.violations} == {"second-sequence"}, result.violations


def test_cl6_a_log_that_is_compacted_no_more_is_reported_where_no_disk_has_changed() -> None:
    def refuse(*_: object) -> None:
        raise StorageError("refused")

    planted = Replacement(target="storage.log.compaction:Compactions.swap_in", make=lambda original: refuse)
    with replaced(planted):
        result = run_scenario("compaction-crashes", 7, stops_early=True)
    assert {violation.checker for violation in result.violations} == {"no-failure"}
    assert result.violations[0].what.endswith("cannot be compacted: refused")
