"""Watches the nodes of a run from outside: the controller's log on its disk, and the lines that every node logs.

A broker acts on a decision after the controller has written it. So the lines of the brokers are taken first, and shown
to the checkers after the controller's log was read: nothing is shown before its cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import final

from cluster.core.controller.metadata_log import METADATA_DIRECTORY
from cluster.core.messages import TopicPartition
from replog.real.mirror import GrowingLog, GrowingText, new_disk
from sim.checkers.base import Jury, Violation
from sim.checkers.fail_over import FailOver
from sim.checkers.ghost import NO_END, Excuse, Ghost
from sim.checkers.registry import all_checkers
from sim.checkers.sightings import BecameFollower, BecameLeader, Created
from sim.faults.conditions import Lookout
from sim.hosts.history import History
from sim.scenario.model import Scenario
from sim.scenario.settings import property_text
from sim.story import in_words
from sim.witness.controller_log import ControllerLog
from sim.witness.topic_lives import NO_LIFE, TopicLives
from storage.config import LogConfig
from storage.disk.filesystem import join

CONTROLLER = "controller"
# A line of `cluster.shell.runtime.log_observation`: the logger, the kind, and its fields.
_OBSERVED = re.compile(r"^\S+ \S+ INFO cluster\.shell\.runtime ([a-z_]+\.[a-z_]+) (.*)$")
_FIELD = re.compile(r"([a-z_]+)=(.*?)(?= [a-z_]+=|$)")
Values = Mapping[str, int | str]
Note = Callable[[str, str], None]


def parse_observation(line: str) -> tuple[str, dict[str, int | str]] | None:
    """Returns kind and fields of an observation as a node logs it; None for any other line."""
    found = _OBSERVED.match(line)
    if found is None:
        return None
    fields = {name: _number_or_text(text.strip()) for name, text in _FIELD.findall(found[2])}
    return found[1], fields


def _number_or_text(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text


def partitions_of(scenario: Scenario) -> list[TopicPartition]:
    """Returns every partition that the scenario's topics have when they exist."""
    return [
        TopicPartition(name, partition)
        for name, topic in scenario.topics.items()
        for partition in range(topic.partitions)
    ]


def _created(scenario: Scenario, topic_partition: TopicPartition) -> Created:
    """Returns what the topic promises. A flush is no promise here: nobody outside sees what is on the disk for good."""
    topic = scenario.topics[topic_partition.topic]
    config = LogConfig.from_properties({key: property_text(value) for key, value in topic.config.items()})
    return Created(str(topic_partition), min(config.min_insync_replicas, topic.replicas), False)


@final
class Watch:
    """What is known of a run from outside: the ghost, whom the checkers have judged, and which topics exist."""

    def __init__(
        self, scenario: Scenario, data: Path, history: History, now_us: Callable[[], int],
        on_violation: Callable[[Violation], None], note: Note,
    ) -> None:  # fmt: skip
        """`data` has the directories of the nodes and their log lines, `NAME.txt`. `note` tells of a node."""
        self.ghost, self.lives, self._note, self._history = Ghost(), TopicLives(), note, history
        self.jury = Jury(self.ghost, all_checkers(self.ghost), now_us=now_us, on_violation=on_violation)
        self.lookout = Lookout(self.ghost, history)
        self._created = {str(each): _created(scenario, each) for each in partitions_of(scenario)}
        for created in self._created.values():
            self.jury.see(created)
        disk, directory = new_disk(), join(CONTROLLER, METADATA_DIRECTORY)
        self._controller_log = GrowingLog(data / CONTROLLER / "log-1" / METADATA_DIRECTORY, disk, directory)
        # Who is heard, and when, is not seen from outside: this judge is never asked.
        fail_over = FailOver(session_timeout_us=0, heartbeat_us=0)
        self._decisions = ControllerLog(self.jury, disk, CONTROLLER, self._created, self._on_topic, fail_over)
        names = [CONTROLLER, *(f"broker-{number}" for number in range(1, scenario.cluster.brokers + 1))]
        self._starts: dict[str, int] = {}
        self._texts = {name: GrowingText(data / f"{name}.txt") for name in names}

    def look(self) -> None:
        """Take in what has happened since the last call, and wake the step that waits for it."""
        lines = [(name, line) for name, text in self._texts.items() for line in text.read_on()]
        if self._controller_log.read_on():
            self._decisions.read_on()
        for name, line in lines:
            if (observed := parse_observation(line)) is not None:
                self._on_observed(name, *observed)
        self.lookout.look()

    def replicas(self) -> dict[str, Sequence[int]]:
        """Returns the brokers that the controller has assigned to each partition that exists."""
        present = (name for name in self._created if self.lives.exists(name.rpartition("-")[0]))
        histories = self._decisions.replay.partitions
        return {name: histories[name][-1].state.replicas for name in present if name in histories}

    def unfenced_brokers(self) -> Sequence[int]:
        """Returns the brokers that the controller counts as alive, and that do not shut down."""
        return self._decisions.replay.active()

    def _on_topic(self, topic: str, topic_id: str | None) -> None:
        """Begin or end the life of a topic: no promise of a deleted one binds the next of its name."""
        names = [name for name in self._created if name.rpartition("-")[0] == topic]
        for name in (topic, *names):
            self.lives.hold(0, name, topic_id or NO_LIFE)
        if topic_id is not None:
            self.lives.begin(topic, topic_id)
            return
        self.lives.end(topic)
        for name in names:
            self.ghost.begin_again(name)
            self.jury.see(self._created[name])

    def note_sent(self, topic: str, value: str) -> None:
        """Note to which life of its topic a value was sent, where the topic has several."""
        self.lives.note_acknowledged(0, topic, value)

    def _on_observed(self, name: str, kind: str, values: dict[str, int | str]) -> None:
        words = in_words(kind, values)
        if words is not None:
            self._note(name, words)
        if kind == "broker.started":
            self._on_started(name, "a clean" if values["clean"] else "an unclean")
        partition = str(values.get("topic_partition", ""))
        if partition not in self._created or not name.startswith("broker-"):
            return
        broker = int(name.removeprefix("broker-"))
        if kind == "replica.truncated":
            self.lookout.on_truncated(partition)
        elif not self.lives.was_deleted(partition):
            # Of a topic that had several lives, a line does not say which one it is about.
            self._on_role(broker, partition, kind, values)

    def _on_started(self, name: str, stop: str) -> None:
        self._starts[name] = self._starts.get(name, 0) + 1
        if self._starts[name] > 1:
            self._note(name, f"is back after {stop} stop")

    def _on_role(self, broker: int, partition: str, kind: str, values: dict[str, int | str]) -> None:
        if kind == "replica.became_leader":
            epoch, end = int(values["leader_epoch"]), int(values["log_end_offset"])
            self.jury.see(BecameLeader(broker, partition, epoch, end))
            if epoch in self.ghost.partition(partition).unclean_epochs:
                self._excuse(partition, end, broker)
        elif kind == "replica.became_follower":
            epoch, leader = int(values["leader_epoch"]), int(values["leader"])
            self.jury.see(BecameFollower(broker, partition, epoch, leader))

    def _excuse(self, partition: str, start: int, broker: int) -> None:
        """Excuse what the leader of an unclean election lacks: all from the end of its log on, as far as is known."""
        reason = f"unclean election of broker {broker}"
        self.ghost.excuses.append(Excuse(partition, start, NO_END, reason))
        self._note("", f"EXCUSED {partition}: offsets {start} to the end may be lost: {reason}")
