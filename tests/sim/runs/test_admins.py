"""Admin clients: a run with them holds, and shows brokers that lose what they forward."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import cluster.core.client.admin
from cluster.core.errors import ErrorCode
from cluster.core.messages import DEFAULT_COUNT, CreateTopicRequest, MetadataResponse
from sim.bugs import Replacement, replaced
from sim.run import run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario

HEAD = """\
scenario: admins
duration: 6s
topics:
  t: {partitions: 1, replicas: 1}
"""
ADMINS = """\
admins:
  - {every: 150ms}
steps:
  - {at: 3s, kill: controller, down: 4s}
"""


@pytest.mark.slow
def test_a_run_with_admins_holds() -> None:
    result = run_scenario(parse_scenario(HEAD + ADMINS), 1, stops_early=True)
    assert not result.violations, result.violations


@pytest.mark.slow
def test_a_run_shows_a_broker_that_loses_a_failure_of_what_it_forwarded() -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda body, error: None

    def forget(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda outbox, call, body: None if body is None else original(outbox, call, body)

    lost = Replacement(target="cluster.core.broker.forwarding:refusal", make=make)
    dropped = Replacement(target="cluster.core.outbox:Outbox.reply", make=forget)
    with replaced(lost), replaced(dropped):
        result = run_scenario(parse_scenario(HEAD + ADMINS), 1, stops_early=True)
    assert result.violations[0].checker == "unanswered-calls"


RESTARTED = """\
admins:
  - {every: 20ms}
steps:
  - {at: 2500ms, kill: broker 1, down: 1ms}
  - {at: 2700ms, kill: broker 2, down: 1ms}
  - {at: 2900ms, kill: broker 3, down: 1ms}
"""


def test_a_run_shows_an_admin_that_takes_the_refusal_of_a_starting_broker_for_the_answer() -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def error_of(body: object) -> tuple[ErrorCode, str]:
            return (ErrorCode.NONE, "") if isinstance(body, MetadataResponse) else original(body)

        return error_of

    scenario = parse_scenario(HEAD + RESTARTED)
    assert not run_scenario(scenario, 1, stops_early=True).violations
    with replaced(Replacement(target="cluster.core.client.admin:_error_of", make=make)):
        result = run_scenario(scenario, 1, stops_early=True)
    assert "a refusal was taken for the answer" in result.violations[0].what


def test_a_run_shows_an_admin_that_gives_a_call_up_because_a_broker_is_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster.core.client.admin, "_OF_THE_NODE", (ErrorCode.NETWORK_EXCEPTION,))
    what = run_scenario(parse_scenario(HEAD + RESTARTED), 1, stops_early=True).violations[0].what
    assert re.search(r"call [0-9]+ is given up after [0-9]+ ms of 8000: BROKER_NOT_AVAILABLE", what)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "admins:\n  - {every: 10us}\n", "at least 1ms"),
        (HEAD.replace("  t:", "  of-admin-1:") + "admins:\n  - {}\n", "such names"),
    ],
)
def test_admins_that_cannot_work_are_refused(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        parse_scenario(text)


@pytest.mark.slow
def test_topics_of_admins_have_a_size_or_the_default_one_or_brokers_of_their_choice() -> None:
    asked: list[tuple[bool, bool]] = []

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def create(control: Any, request: CreateTopicRequest) -> Any:
            asked.append((request.partitions == DEFAULT_COUNT, bool(request.assignment)))
            return original(control, request)

        return create

    target = "cluster.core.controller.topics:TopicControl.create"
    with replaced(Replacement(target=target, make=noting)):
        result = run_scenario(parse_scenario(HEAD + ADMINS), 1, stops_early=True)
    assert not result.violations, result.violations
    assert set(asked) >= {(False, False), (True, False), (False, True)}
