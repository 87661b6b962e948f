"""Steps that create, delete and alter topics, and metadata that a broker replays late."""

from __future__ import annotations

import pytest

from sim.bugs.planting import Replacement, replaced
from sim.run import RunResult, Verdict, run_scenario
from sim.scenario.loading import ScenarioError, parse_scenario

HEAD = """\
scenario: topics
duration: 6s
cluster: {brokers: 2}
topics:
  t: {partitions: 1, replicas: 2}
  u: {partitions: 1, replicas: 2, exists: false}
producers:
  - {topic: t, rate: 20/s, acks: all}
consumers:
  - {topic: t}
steps:
"""
RECREATED = """\
  - lag_metadata: follower(t/0)
    for: 1s
  - delete_topic: t
  - create_topic: t
    leader: broker 2
  - at: +1500ms
    alter_topic: t
    config: {retention.ms: 3600000}
  - create_topic: u
"""


def run(steps: str) -> RunResult:
    return run_scenario(parse_scenario(HEAD + steps), 1)


def test_a_topic_that_is_created_again_keeps_what_it_acknowledged_since() -> None:
    result = run(RECREATED)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    told = "\n".join(result.story)
    for words in ("delete topic t", "create topic t, led by broker 2", "alter topic t: retention.ms=3600000"):
        assert words in told
    assert told.index("replays no metadata") < told.index("replays metadata again")
    assert "u-0: leads epoch 0" in told.replace("broker-1     ", "").replace("broker-2     ", "")


def test_a_topic_that_stays_deleted_is_not_judged() -> None:
    result = run("  - at: 3s\n    delete_topic: t\n")
    assert not result.violations


def test_c1_a_leader_that_does_not_compare_topic_ids_is_found() -> None:
    result = run_scenario(parse_scenario(HEAD + RECREATED), 1, bug="without-check-topic-id")
    assert result.verdict is Verdict.VIOLATED
    assert "in-sync-replicas" in {found.checker for found in result.violations}


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("delete_topic: x", "unknown topic 'x'"),
        ("create_topic: x", "unknown topic 'x'"),
        ("create_topic: t\n    leader: broker 9", "unknown node 'broker 9'"),
        ("alter_topic: t\n    config: {cleanup.policy: compact}", "cleanup.policy cannot change"),
        ("alter_topic: t\n    config: {retention.moons: 2}", "retention.moons"),
        ("alter_topic: t\n    config: {}", "config"),
        ("lag_metadata: controller\n    for: 1s", "the controller replays no metadata"),
        ("lag_metadata: broker 1", "for"),
    ],
)
def test_a_bad_topic_step_is_refused_with_its_line(step: str, what: str) -> None:
    with pytest.raises(ScenarioError, match=r"^bad\.yaml:1[234]: ") as raised:
        parse_scenario(f"{HEAD}  - {step}\n", "bad.yaml")
    assert what in str(raised.value)


FLUSH_EACH = f"""\
{HEAD.replace("20/s", "1/s")}\
  - at: 3s
    alter_topic: t
    config: {{flush.messages: 1}}
"""


def test_a_topic_that_begins_with_a_flush_of_each_record_keeps_it() -> None:
    promised = HEAD.replace("t: {partitions: 1,", "t: {config: {flush.messages: 1}, partitions: 1,")
    end = "  - alter_topic: t\n    config: {flush.messages: ''}\n"
    with pytest.raises(ScenarioError, match=r"flush\.messages cannot change"):
        parse_scenario(promised + end)
    assert parse_scenario(HEAD + end).steps


def test_a_follower_of_which_each_record_is_to_be_flushed_goes_on_after_a_flush() -> None:
    """What the follower has not flushed holds up its next fetch: where no records come, the change begins a flush."""
    begins_none = Replacement(
        target="cluster.core.replica.flushes:Flushes.on_new_role", make=lambda original: lambda *_: None
    )
    scenario = parse_scenario(FLUSH_EACH)
    assert run_scenario(scenario, 1).violations == ()
    with replaced(begins_none):
        found = run_scenario(scenario, 1).violations
    assert {each.checker for each in found} == {"idle-brokers"}


def test_a_disk_that_is_set_back_to_a_deleted_topic_holds_nothing_of_the_present_one() -> None:
    """Compaction has left only late offsets of the old log, which do not differ from those of the new one."""
    text = """\
scenario: disk-set-back-to-a-deleted-topic
duration: 8s
cluster: {brokers: 1, settings: {log.cleaner.backoff.ms: 300}}
topics:
  u:
    replicas: 1
    config: {cleanup.policy: compact, segment.bytes: 2000, min.cleanable.dirty.ratio: '0.01'}
producers:
- {topic: u, rate: 50/s, keys: 1}
steps:
- {at: 3500ms, save_disk: broker 1}
- {at: 4s, delete_topic: u}
- {at: 4500ms, create_topic: u}
- {at: 5500ms, restore_disk: broker 1, down: 300ms}
"""
    result = run_scenario(parse_scenario(text, "back.yaml"), 1)
    assert result.verdict is Verdict.HELD, (result.violations, result.starved_because)
    assert list(result.excused) == ["every in-sync replica lost it: a disk was set back to an older image"]


def test_pro5_whoever_waits_for_a_replica_that_is_removed_is_told_in_the_same_step() -> None:
    """An append waits for a follower that stands still, a consumer for more records, as the topic is deleted."""
    steps = "  - {at: 2s, pause: 'follower(t/0)', for: 3s}\n  - {at: 2300ms, delete_topic: t}\n"
    wakes_nobody = Replacement(
        target="cluster.core.replica.context:ReplicaContext.touch", make=lambda original: lambda *_: None
    )
    assert run(steps).violations == ()
    with replaced(wakes_nobody):
        found = run(steps).violations
    told = [each.what for each in found if each.checker == "waits-in-vain"]
    assert any(each.endswith("fetches wait for a replica that is gone") for each in told), found
