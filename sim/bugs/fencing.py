"""The bugs of the catalogue that take out one comparison of `cluster/core/fencing.py` each.

Where two comparisons refuse the same request, one of them without the other is no mistake that anybody could see: a bug
takes out both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sim.bugs.planting import Bug, Make, Replacement

Original = Callable[..., Any]

# What happens without the check of that name.
_CHECKS: Mapping[str, str] = {
    "check_cluster": "A node of another cluster is obeyed.",
    "check_names_itself": "A broker may name another sender in its header than in its request, or none.",
    "check_topic_id": "A leader counts what a follower copied for a deleted topic of the same name (C1, KIP-516).",
    "check_known_topic_id": "The leader of a deleted topic changes the ISR of the next one of its name (KIP-516).",
    "check_proposal_is_latest": "A copy of a refused proposal is accepted when it comes late.",
    "check_proposal_not_ahead": "A controller that lags decides about a partition (KAFKA-14154).",
}
# Each request of an earlier life names its broker epoch and its incarnation; a proposal of an older leader epoch names
# an older partition epoch too.
_TWINS: Mapping[str, tuple[tuple[str, str], str]] = {
    "without-checks-of-brokers": (
        ("check_broker_epoch", "check_incarnation"),
        "The controller obeys an earlier life of a broker, or another process in the same life (KR-CTL-4).",
    ),
    "without-checks-of-followers": (
        ("check_life", "check_fetch_of_present_life"),
        "A leader obeys an earlier life of a follower: its fetch counts as progress (KAFKA-15221).",
    ),
    "without-checks-of-proposals": (
        ("check_proposal_of_leader_epoch", "check_proposal_builds_on"),
        "A proposal of an older leader epoch, or one that builds on an older ISR, replaces the present one.",
    ),
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
    "is_change_of_life": (
        True,
        "A change of an earlier life of a broker is taken for one of the present life.",
    ),
    "is_registration_read": (
        True,
        "A broker is unfenced before it has read what was decided before it came (BRK-2).",
    ),
    "is_later_life": (False, "A process goes on in its roles after another one was registered under its id."),
    "is_answer_to_life": (True, "The answer to a heartbeat of the last life moves the present one on."),
    "is_registered_since": (True, "A process that was superseded goes on without a registration of its own."),
    "is_removal_of": (True, "The removal of a topic takes the next one of its name out of the metadata."),
    "is_topic_of_batches": (True, "A producer goes on with its sequence in a topic that was created again."),
    "is_earlier_leader": (False, "A broker that lags takes a client back to an earlier leader."),
    "is_news_of_leader": (True, "A refusal of a broker that lags takes a client back to an earlier leader."),
    "is_newer_partition_epoch": (True, "A leader goes back to an older ISR (ISR-7)."),
}


# The scenarios that find them; drawn seed 1 finds `is_news_of_leader`. The others are noticed by
# `tests/cluster/test_fencing.py`.
_FOUND_BY: Mapping[str, str] = {
    "check_topic_id": "recreated-topic",
    "is_newer_leader_epoch": "leader-crash",
    "is_earlier_leader": "stale-leader-epoch",
    "is_registration_read": "leader-crash",
    "is_same_life": "late-isr-proposal",
    "is_topic_of_batches": "recreated-topic",
    "is_same_leader_epoch": "re-elected-leader",
}


def _admits_all(original: Original) -> Original:
    return lambda *arguments, **named: None


def _says(answer: bool) -> Make:
    return lambda original: lambda *arguments: answer


def _replacement(function: str, make: Make) -> Replacement:
    return Replacement(target=f"cluster.core.fencing:{function}", make=make)


def _bug(function: str, story: str, make: Make) -> Bug:
    return Bug(
        name=f"without-{function.replace('_', '-')}",
        story=story,
        replacements=(_replacement(function, make),),
        found_by=_FOUND_BY.get(function, ""),
    )


def _twins(name: str, functions: tuple[str, str], story: str) -> Bug:
    replacements = tuple(_replacement(function, _admits_all) for function in functions)
    return Bug(name=name, story=story, replacements=replacements)


FENCING_BUGS: tuple[Bug, ...] = (
    *(_bug(function, story, _admits_all) for function, story in _CHECKS.items()),
    *(_twins(name, functions, story) for name, (functions, story) in _TWINS.items()),
    *(_bug(function, story, _says(answer)) for function, (answer, story) in _QUESTIONS.items()),
)
