"""Each comparison of `cluster/core/fencing.py`: what it refuses, and that its planted bug is noticed here."""

from __future__ import annotations

import inspect

import pytest

from cluster.core import fencing
from cluster.core.errors import ClusterError, ErrorCode
from cluster.core.messages import NO_EPOCH, NO_TOPIC_ID, Header, TopicPartition
from sim.bugs import bugs, install

T0 = TopicPartition("t", 0)
OLD, NEW = "1f" * 16, "2e" * 16
HEADER = Header(broker_id=2, broker_epoch=7, incarnation="a")

# By function: arguments, and the error (None: admitted) or the answer.
CASES: dict[str, list[tuple[tuple[object, ...], ErrorCode | bool | None]]] = {
    "check_cluster": [
        ((2, "theirs", "ours"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        ((2, "ours", "ours"), None),
        ((2, "", "ours"), None),
        ((2, "theirs", ""), None),
    ],
    "check_names_itself": [
        ((None, 2, 7), ErrorCode.INVALID_REQUEST),
        ((HEADER, 3, 7), ErrorCode.INVALID_REQUEST),
        ((HEADER, 2, 8), ErrorCode.INVALID_REQUEST),
        ((HEADER, 2, 7), None),
    ],
    "check_broker_epoch": [
        ((2, 6, 7), ErrorCode.STALE_BROKER_EPOCH),
        ((2, 8, 7), ErrorCode.STALE_BROKER_EPOCH),
        ((2, -1, -1), ErrorCode.STALE_BROKER_EPOCH),
        ((2, 7, 7), None),
    ],
    "check_life": [
        ((2, (6, "a"), (7, "b")), ErrorCode.STALE_BROKER_EPOCH),
        ((2, (7, "a"), (7, "b")), ErrorCode.STALE_BROKER_EPOCH),
        ((2, (7, "b"), (7, "b")), None),
        ((2, (8, "c"), (7, "b")), None),
    ],
    "check_fetch_of_present_life": [
        ((2, 6, 7), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ((2, 7, 7), None),
        ((2, 8, 7), None),
    ],
    "check_incarnation": [((2, "a", "b"), ErrorCode.STALE_BROKER_EPOCH), ((2, "b", "b"), None)],
    "check_topic_id": [
        ((T0, OLD, NEW), ErrorCode.INCONSISTENT_TOPIC_ID),
        ((T0, NEW, NEW), None),
        ((T0, NO_TOPIC_ID, NEW), None),
    ],
    "check_known_topic_id": [
        ((T0, OLD, NEW), ErrorCode.UNKNOWN_TOPIC_ID),
        ((T0, OLD, NO_TOPIC_ID), ErrorCode.UNKNOWN_TOPIC_ID),
        ((T0, NEW, NEW), None),
    ],
    "check_leader_epoch": [
        ((T0, 3, 4), ErrorCode.FENCED_LEADER_EPOCH),
        ((T0, 5, 4), ErrorCode.UNKNOWN_LEADER_EPOCH),
        ((T0, 4, 4), None),
        ((T0, NO_EPOCH, 4), None),
    ],
    "check_proposal_not_ahead": [
        ((T0, (5, 0), (4, 9)), ErrorCode.NOT_CONTROLLER),
        ((T0, (4, 10), (4, 9)), ErrorCode.NOT_CONTROLLER),
        ((T0, (4, 9), (4, 9)), None),
    ],
    "check_proposal_of_leader_epoch": [
        ((T0, 3, 4), ErrorCode.FENCED_LEADER_EPOCH),
        ((T0, 4, 4), None),
    ],
    "check_proposal_builds_on": [
        ((T0, 8, 9), ErrorCode.INVALID_UPDATE_VERSION),
        ((T0, 9, 9), None),
    ],
    "check_proposal_is_latest": [
        ((T0, 0, 1), ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        ((T0, 1, 1), ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        ((T0, 2, 1), None),
    ],
    "is_same_life": [((6, 7), False), ((7, 7), True)],
    "is_same_incarnation": [(("a", "b"), False), (("a", "a"), True)],
    "is_change_of_life": [((6, 7), False), ((8, 7), False), ((7, 7), True)],
    "is_registration_read": [((8, 7), True), ((7, 7), False), ((6, 7), False)],
    "is_later_life": [((8, 7), True), ((7, 7), False), ((6, 7), False)],
    "is_answer_to_life": [((6, 7), False), ((7, 7), True)],
    "is_registered_since": [((8, 7), True), ((7, 7), False)],
    "is_removal_of": [((OLD, NEW), False), ((NEW, NEW), True)],
    "is_topic_of_batches": [((OLD, NEW), False), ((NEW, NO_TOPIC_ID), False), ((NEW, NEW), True)],
    "is_earlier_leader": [((3, 4), True), ((4, 4), False), ((5, 4), False)],
    "is_news_of_leader": [((5, 4), True), ((4, 4), False), ((3, 4), False)],
    "is_same_topic": [((OLD, NEW), False), ((NEW, NEW), True)],
    "is_same_leader_epoch": [((3, 4), False), ((4, 4), True)],
    "is_same_log": [
        (((OLD, 0), (NEW, 0)), False),
        (((NEW, 0), (NEW, 1)), False),
        (((NEW, 0), (NEW, 0)), True),
    ],
    "is_newer_leader_epoch": [((5, 4), True), ((4, 4), False), ((3, 4), False)],
    "is_older_partition_epoch": [((3, 4), True), ((4, 4), False)],
    "is_newer_partition_epoch": [((5, 4), True), ((4, 4), False)],
}


def outcome(function: str, arguments: tuple[object, ...]) -> ErrorCode | bool | None:
    """Return what the function answers, or the code with which it refuses."""
    try:
        return getattr(fencing, function)(*arguments)  # type: ignore[no-any-return]
    except ClusterError as error:
        return error.code


def wrong(function: str) -> list[tuple[object, ...]]:
    """Return the arguments for which the function does not do what it should."""
    return [arguments for arguments, wanted in CASES[function] if outcome(function, arguments) != wanted]


@pytest.mark.parametrize("function", CASES)
def test_a_comparison_refuses_what_is_not_the_senders_or_the_receivers(function: str) -> None:
    assert wrong(function) == []


def test_c1_a_follower_must_name_the_topic_id() -> None:
    with pytest.raises(ClusterError, match="INCONSISTENT_TOPIC_ID"):
        fencing.check_topic_id(T0, NO_TOPIC_ID, NEW, may_omit=False)


def test_what_a_check_refuses_is_told_in_the_log_but_for_what_every_client_gets() -> None:
    codes = {wanted for cases in CASES.values() for _, wanted in cases if isinstance(wanted, ErrorCode)}
    assert codes - {ErrorCode.NOT_LEADER_OR_FOLLOWER} == fencing.REFUSALS


PLANTED = {
    replacement.target.removeprefix("cluster.core.fencing:"): bug.name
    for bug in bugs().values()
    for replacement in bug.replacements
    if replacement.target.startswith("cluster.core.fencing:")
}


@pytest.mark.parametrize("function", PLANTED)
def test_the_planted_bug_of_a_comparison_is_noticed(function: str) -> None:
    with install(PLANTED[function]):
        assert wrong(function) != []
    assert wrong(function) == []


def test_every_comparison_has_cases_and_a_planted_bug() -> None:
    found = [name for name, _ in inspect.getmembers(fencing, inspect.isfunction) if not name.startswith("_")]
    assert sorted(found) == sorted(CASES) == sorted(PLANTED)
