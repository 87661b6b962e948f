"""The bugs of the catalogue that take out one comparison of `cluster/core/fencing.py` each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sim.bugs.planting import Bug, Make, Replacement

Original = Callable[..., Any]

# What happens without the check of that name.
_CHECKS: Mapping[str, str] = {
    "check_cluster": "A node of another cluster is obeyed.",
    "check_names_itself": "A broker may name another sender in its header than in its request, or none.",
    "check_broker_epoch": "The controller obeys an earlier life of a broker (KR-CTL-4).",
    "check_life": "A leader obeys an earlier life of a follower's broker, or another process in the same life.",
    "check_fetch_of_present_life": "A fetch of an earlier life counts as progress (KAFKA-15221).",
    "check_incarnation": "The controller obeys another process under the same broker id and epoch.",
    "check_topic_id": "A leader counts what a follower copied for a deleted topic of the same name (C1, KIP-516).",
    "check_known_topic_id": "The leader of a deleted topic changes the ISR of the next one of its name (KIP-516).",
    "check_proposal_not_ahead": "A controller that lags decides about a partition (KAFKA-14154).",
    "check_proposal_of_leader_epoch": "The leader of an older epoch changes the ISR.",
    "check_proposal_builds_on": "A proposal that builds on an older ISR replaces the present one.",
}
# What happens where the question of that name is always answered in one way.
_QUESTIONS: Mapping[str, tuple[bool, str]] = {
    "is_same_life": (True, "A broker joins the ISR by the fetches of its earlier life (KIP-903)."),
    "is_same_incarnation": (
        True,
        "A new process of a broker goes on under the broker epoch of the last one.",
    ),
    "is_same_topic": (
        True,
        "The removal of a topic deletes the next one of its name, and a log passes for its.",
    ),
    "is_same_leader_epoch": (
        True,
        "A leader that is elected again keeps what it knew of its followers (B-21).",
    ),
    "is_same_log": (True, "What waits is answered by another topic of the name, or in another leader epoch."),
    "is_newer_leader_epoch": (False, "A follower does not notice that its leader epoch is over."),
    "is_older_partition_epoch": (False, "A replica goes back to an older state of its partition (ROL-1)."),
    "is_newer_partition_epoch": (True, "A leader goes back to an older ISR (ISR-7)."),
}


# The scenarios that find them; the others are noticed by `tests/cluster/test_fencing.py`.
_FOUND_BY: Mapping[str, str] = {
    "check_topic_id": "recreated-topic",
    "is_newer_leader_epoch": "leader-crash",
    "is_same_life": "late-isr-proposal",
    "is_same_leader_epoch": "re-elected-leader",
}


def _admits_all(original: Original) -> Original:
    return lambda *arguments, **named: None


def _says(answer: bool) -> Make:
    return lambda original: lambda *arguments: answer


def _bug(function: str, story: str, make: Make) -> Bug:
    return Bug(
        name=f"without-{function.replace('_', '-')}",
        story=story,
        replacements=(Replacement(target=f"cluster.core.fencing:{function}", make=make),),
        found_by=_FOUND_BY.get(function, ""),
    )


FENCING_BUGS: tuple[Bug, ...] = (
    *(_bug(function, story, _admits_all) for function, story in _CHECKS.items()),
    *(_bug(function, story, _says(answer)) for function, (answer, story) in _QUESTIONS.items()),
)
