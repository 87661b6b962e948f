"""What the controller would refuse of a scenario's topics, or what no sound cluster could do, is told with its line."""

from __future__ import annotations

import pytest

from sim.scenario.loading import ScenarioError, parse_scenario
from sim.scenario.topic_checks import contradiction

HEAD = "scenario: checked\nduration: 3s\n"
TOPIC = "topics: {t: {}}\n"
LAGS = "{min.compaction.lag.ms: 100, max.compaction.lag.ms: 50}"


@pytest.mark.parametrize(
    ("rest", "line", "what"),
    [
        ("topics:\n  __cluster_metadata: {}\n", 4, "the controller's own log"),
        ("topics:\n  a.b: {}\n  a_b: {}\n", 5, "'a_b' collides with 'a.b'"),
        ("cluster: {settings: {max.topics: 1}}\ntopics:\n  t: {}\n  u: {}\n", 6, "max.topics allows 1"),
        (
            "cluster: {settings: {max.partitions.per.topic: 2}}\ntopics:\n  t:\n    partitions: 3\n",
            6,
            "max.partitions.per.topic allows 2",
        ),
        (f"topics:\n  t:\n    config: {LAGS}\n", 5, "must be at least min.compaction.lag.ms=100"),
        ("network: {loss: 40%}\n" + TOPIC, 3, "at most 30% is lost"),
        ("network: {latency: 1s}\n" + TOPIC, 3, "there and back"),
        ("converge: 0s\n" + TOPIC, 3, "write at least 1s"),
        (
            "cluster: {settings: {broker.session.timeout.ms: 40000}}\n" + TOPIC,
            3,
            "a `converge` of at least 45000ms",
        ),
        (
            "cluster: {settings: {replica.fetch.wait.max.ms: 1500}}\n" + TOPIC,
            3,
            "replica.socket.timeout.ms is 1500",
        ),
        (
            "canaries: true\ntopics: {t: {config: {cleanup.policy: compact}}}\nproducers:\n- topic: t\n",
            6,
            "takes no record without a key",
        ),
    ],
)
def test_what_could_only_end_in_a_false_violation_is_refused(rest: str, line: int, what: str) -> None:
    with pytest.raises(ScenarioError, match=rf"^bad\.yaml:{line}: ") as raised:
        parse_scenario(HEAD + rest, "bad.yaml")
    assert what in str(raised.value)


@pytest.mark.parametrize("first", ["max", "min"])
def test_changes_that_contradict_each_other_are_refused_where_the_second_stands(first: str) -> None:
    changes = {"min": "min.compaction.lag.ms: 100", "max": "max.compaction.lag.ms: 50"}
    second = "min" if first == "max" else "max"
    steps = "".join(f"- alter_topic: t\n  config: {{{changes[each]}}}\n" for each in (first, second))
    with pytest.raises(ScenarioError, match=r"^bad\.yaml:8: max\.compaction\.lag\.ms=50"):
        parse_scenario(f"{HEAD}{TOPIC}steps:\n{steps}", "bad.yaml")


def test_a_change_that_takes_back_the_one_before_contradicts_nothing() -> None:
    steps = "- alter_topic: t\n  config: {min.compaction.lag.ms: ''}\n"
    steps += "- alter_topic: t\n  config: {max.compaction.lag.ms: 50}\n"
    topic = "topics: {t: {config: {min.compaction.lag.ms: 100}}}\n"
    assert len(parse_scenario(f"{HEAD}{topic}steps:\n{steps}").steps) == 2


def test_a_topic_that_is_created_again_has_what_the_scenario_says_of_it() -> None:
    steps = (
        "- alter_topic: t\n  config: {min.compaction.lag.ms: 1000}\n- delete_topic: t\n- create_topic: t\n"
    )
    steps += "- alter_topic: t\n  config: {max.compaction.lag.ms: 500}\n"
    assert len(parse_scenario(f"{HEAD}{TOPIC}steps:\n{steps}").steps) == 4


def test_topics_that_steps_create_may_follow_others() -> None:
    topics = "cluster: {settings: {max.topics: 1}}\ntopics:\n  a.b: {}\n  a_b: {exists: false}\n"
    steps = "steps:\n- delete_topic: a.b\n- create_topic: a_b\n"
    assert len(parse_scenario(HEAD + topics + steps).topics) == 2


def test_an_empty_text_is_no_value_of_a_topic() -> None:
    with pytest.raises(ScenarioError, match=r"^bad\.yaml:3: segment\.bytes=: must be a number"):
        parse_scenario(HEAD + "topics: {t: {config: {segment.bytes: ''}}}\n", "bad.yaml")


def test_a_property_may_be_a_number_with_a_fraction() -> None:
    text = HEAD + "topics: {t: {config: {min.cleanable.dirty.ratio: 0.1}}}\n"
    assert parse_scenario(text).topics["t"].config == {"min.cleanable.dirty.ratio": 0.1}


@pytest.mark.parametrize("spelt", ["1", "'01'", "' 1 '"])
def test_a_flush_of_each_record_cannot_change_however_it_is_spelt(spelt: str) -> None:
    topic = f"topics: {{t: {{config: {{flush.messages: {spelt}}}}}}}\n"
    steps = "steps:\n- alter_topic: t\n  config: {flush.messages: 5}\n"
    with pytest.raises(ScenarioError, match=r"flush\.messages cannot change"):
        parse_scenario(HEAD + topic + steps)


def test_a_contradiction_is_told_in_words() -> None:
    change = {"max.compaction.lag.ms": "50"}
    assert contradiction({}, change) is None
    assert "must be at least" in str(contradiction({"min.compaction.lag.ms": "100"}, change))
    assert contradiction({"min.compaction.lag.ms": "100"}, change | {"min.compaction.lag.ms": ""}) is None
