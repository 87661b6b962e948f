"""What happens to topics and to the metadata of brokers: topics come, change and leave, and news comes late."""

from __future__ import annotations

from sim.swarm.choices import Choices, Part
from sim.swarm.plans.disks import decision_cut
from sim.swarm.plans.ground import LAST, Fault, Ground, has_lasting
from sim.swarm.workload import BATCH_OVERHEAD_BYTES, WIDE

_LEAST_SEGMENT_BYTES = 1_024
# The clients of a topic that comes back have so long to find it, and to use it.
_CLIENTS_GO_ON_MS = 1_500
# A session ends in less, and another leader is elected.
_ELECTED_MS = 3_000
# In so many of a hundred alterations each append is to be flushed from then on, unless it was before.
_FLUSHED_PERCENT = 30
MIN_IN_SYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
_CHANGES: tuple[Part, ...] = (
    {"segment.bytes": 16_384}, {"segment.ms": 500}, {"retention.ms": 300},
    {"retention.ms": 60_000}, {"retention.bytes": 5_000}, {"retention.bytes": ""}, {"index.interval.bytes": 100},
    {"compression.type": "zstd"}, {"max.message.bytes": 3_000}, {"message.timestamp.type": "LogAppendTime"},
)  # fmt: skip


def _deletable(ground: Ground) -> bool:
    return bool(ground.deletable)


def _delete(ground: Ground, choices: Choices) -> list[Part]:
    return [{"delete_topic": choices.pick(ground.deletable, "topic")}]


def _create(ground: Ground, choices: Choices) -> list[Part]:
    return [{"create_topic": choices.pick(ground.deletable, "topic")}]


def _create_again(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a topic that is deleted, and created again at once or soon after.

    In part of the seeds another leader than the first was elected by then: clients know epochs that the topic, when it
    is back, has not had yet. Or its leader reads of both at once, and has led on meanwhile.
    """
    name = choices.pick(ground.deletable, "topic")
    if ground.scenario.topics[name].replicas > 1 and choices.chance(25, "unread"):
        soon: Part = {"at": f"+{choices.pick((0, 50, 200), 'gap')}ms", "create_topic": name}
        unread: Part = {"lag_metadata": f"leader({name}/0)", "for": choices.ms((600, 1_500), "for")}
        return [unread, {"at": "+50ms", "delete_topic": name}, soon]
    if ground.scenario.topics[name].replicas > 1 and choices.chance(40, "led again"):
        at_once: Part = {"at": f"+{choices.pick((0, 50), 'gap')}ms", "create_topic": name}
        elected: Part = {"when": f"elected({name}/0)", "within": "4s", "delete_topic": name}
        return [{"kill": f"leader({name}/0)", "down": choices.ms((300, 3_000), "down")}, elected, at_once]
    again: Part = {"at": f"+{choices.pick((0, 50, 500, 2_000), 'gap')}ms", "create_topic": name}
    return [{"delete_topic": name}, again]


def _again_at_the_end(ground: Ground, choices: Choices) -> list[Part]:
    """Returns the end of a topic at which other faults have aimed, under the hands of its clients, and its return.

    In some seeds one of its brokers ends soon after: what it starts from must be of the present topic.
    """
    name = choices.pick(ground.lasting, "topic")
    # At once in most seeds: then clients never hear that there was no such topic, and must notice by its id.
    again: Part = {"at": f"+{choices.pick((0, 0, 0, 800), 'gap')}ms", "create_topic": name}
    steps: list[Part] = [{"delete_topic": name}, again]
    if choices.chance(40, "ends"):
        after: Part = {"at": f"+{choices.pick((200, 400, 600), 'after')}ms"}
        victim = f"{choices.pick(('leader', 'follower'), 'victim')}({name}/0)"
        steps.append(after | {"kill": victim, "down": choices.ms((1, 100), "down")})
    return steps


def _fails_then_deleted(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a topic that loses the directories of one log, is deleted while it is offline, and is created again."""
    name = choices.pick([each for each in ground.deletable if each != WIDE], "topic")
    partition = f"{name}/{choices.below(ground.scenario.topics[name].partitions, 'partition')}"
    roles = ("leader", "follower") if ground.replicas(partition) > 1 else ("leader",)
    again: Part = {"at": f"+{choices.pick((1, 50, 500), 'again')}ms", "create_topic": name}
    return [
        {"break_disk": f"{choices.pick(roles, 'victim')}({partition})", "log": partition},
        {"at": f"+{choices.pick((50, 600, 1_500), 'gap')}ms", "delete_topic": name},
        *([again] if choices.chance(80, "is created again") else []),
    ]


def _half_made(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a topic that is created again, and brokers that cannot write the topic id of their next new log.

    A directory goes offline then, with a log in it that is half made. The broker has others, and starts again over all
    of them: it may find no second log of the name.
    """
    name = choices.pick([each for each in ground.deletable if each != WIDE], "topic")
    partition = f"{name}/{choices.below(ground.scenario.topics[name].partitions, 'partition')}"
    # A topic that is created again need not have its logs where they were.
    roles = ("leader", "follower") if ground.replicas(partition) > 1 else ("leader",)
    victims = [f"H{number}" for number in range(choices.between(1, len(roles), "victims"))]
    sync: Part = {"file": "partition", "pages": "dirty", "down": choices.ms((300, 1_000), "down")}
    steps: list[Part] = [
        {"pick": f"{role}({partition})", "as": victim} for role, victim in zip(roles, victims, strict=False)
    ]
    steps.append({"at": "+1ms", "delete_topic": name})
    steps += [{"at": "+20ms", "fail_sync": victim} | sync for victim in victims]
    return [*steps, {"at": f"+{choices.pick((50, 300), 'gap')}ms", "create_topic": name}]


def _lacking_topics(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a broker without descriptors as a topic is deleted, and as it is created again.

    What it cannot do then it does later: no log of the new topic is made before that of the old one is gone.
    """
    name = choices.pick([each for each in ground.deletable if each != WIDE], "topic")
    left = choices.pick(("few", "few", "none"), "left")
    end_ms = choices.pick((400, 1_000, 2_500), "end")
    roles = ("leader", "follower") if ground.scenario.topics[name].replicas > 1 else ("leader",)
    victim = f"{choices.pick(roles, 'victim')}({name}/0)"
    lack: Part = {"lack_descriptors": victim, "left": left, "for": f"{end_ms}ms", "as": "L"}
    again: Part = {"at": f"+{choices.pick((1, 100, 300, end_ms + 400), 'again')}ms", "create_topic": name}
    steps: list[Part] = [lack, {"at": "+50ms", "delete_topic": name}, again]
    if choices.chance(40, "ends"):
        steps.append({"at": f"+{choices.pick((100, 700), 'after')}ms", "kill": "L", "down": "300ms"})
    return steps


def _cut_change(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a topic of many partitions, of whose creation the controller writes the first batch at most.

    Its next life drops what it finds of a change that is not whole. Another decision may come first, and is cut then.
    """
    gap: Part = {"at": f"+{choices.pick((300, 600), 'gap')}ms"}
    return [{"delete_topic": WIDE}, gap | decision_cut(choices), {"at": "+1ms", "create_topic": WIDE}]


def _has_wide(ground: Ground) -> bool:
    return WIDE in ground.deletable


def _deletable_narrow(ground: Ground) -> bool:
    return any(each != WIDE for each in ground.deletable)


def _deletable_offline(ground: Ground) -> bool:
    """Whether a topic may be deleted whose log has failed at a broker that goes on with other directories."""
    return _deletable_narrow(ground) and ground.scenario.cluster.directories > 1


def _alter(ground: Ground, choices: Choices) -> list[Part]:
    name = choices.pick(tuple(ground.scenario.topics), "topic")
    change = flushed_change(ground, choices, name) or choices.pick(changes_of(ground, name), "change")
    return [{"alter_topic": name, "config": change}]


def flushed_change(ground: Ground, choices: Choices, topic: str) -> Part:
    """Returns, in part of the seeds, that each append is to be flushed from now on; else nothing.

    A promise that is made to records that are there already is what a broker may forget.
    """
    if choices.chance(_FLUSHED_PERCENT, "flushed") and _of_flushes(ground, topic):
        return {"flush.messages": 1}
    return {}


def changes_of(ground: Ground, topic: str) -> list[Part]:
    """Returns the changes of properties that the topic may get; some are named twice."""
    is_compacted = "compact" in str(ground.scenario.topics[topic].config.get("cleanup.policy"))
    batches = [max(each.batch, each.size) for each in ground.scenario.producers if each.topic == topic]
    # Segments of about one batch: in smaller ones nothing would be taken any more.
    small: Part = {"segment.bytes": max(_LEAST_SEGMENT_BYTES, *batches, 0) + BATCH_OVERHEAD_BYTES}
    return [
        dict(small if is_compacted and "max.message.bytes" in change else change)
        for change in (
            small,
            *_CHANGES,
            small,
            small,
            *_of_replication(ground, topic),
            *_of_flushes(ground, topic),
        )
    ]


def _of_replication(ground: Ground, topic: str) -> list[Part]:
    """Returns the changes of how many must be in sync and, where losses are excused, of who may be elected."""
    replicas = ground.scenario.topics[topic].replicas
    changes: list[Part] = [{MIN_IN_SYNC: 1}, {MIN_IN_SYNC: replicas}, {MIN_IN_SYNC: max(1, replicas - 1)}]
    if ground.profile.excuses:
        changes += [{UNCLEAN: True}, {UNCLEAN: False}]
    return changes


def _of_flushes(ground: Ground, topic: str) -> list[Part]:
    """Returns the changes of when records are flushed; no topic loses a promise with which it began."""
    if ground.scenario.topics[topic].config.get("flush.messages") is not None:
        return []
    return [{"flush.messages": 1}, {"flush.messages": 1}, {"flush.messages": ""}, {"flush.ms": 100}]


def _lag(ground: Ground, choices: Choices) -> list[Part]:
    lasting = choices.ms((300, 1_000, 2_000, 5_000), "for")
    return [{"lag_metadata": ground.broker(choices), "for": lasting}]


TOPICS = (
    Fault(name="delete-topic", family="topic", percent=30, most=1, draw=_delete, is_possible=_deletable),
    Fault(name="create-topic", family="topic", percent=80, most=2, draw=_create, is_possible=_deletable),
    Fault(
        name="create-again",
        family="topic",
        percent=60,
        most=2,
        draw=_create_again,
        is_possible=_deletable,
        lasts_ms=_ELECTED_MS,
    ),
    Fault(
        name="again-at-the-end",
        family=LAST,
        percent=25,
        most=1,
        draw=_again_at_the_end,
        is_possible=has_lasting,
        lasts_ms=_CLIENTS_GO_ON_MS,
    ),
    Fault(name="cut-change", family="topic", percent=100, most=3, draw=_cut_change, is_possible=_has_wide),
    Fault(name="alter-topic", family="topic", percent=45, most=3, draw=_alter),
    Fault(
        name="fails-then-deleted",
        family="topic",
        percent=100,
        most=3,
        draw=_fails_then_deleted,
        is_possible=_deletable_offline,
    ),
    Fault(
        name="half-made",
        family="topic",
        percent=100,
        most=2,
        draw=_half_made,
        is_possible=_deletable_offline,
    ),
    Fault(
        name="lacking-topics",
        family="topic",
        percent=60,
        most=2,
        draw=_lacking_topics,
        is_possible=_deletable_narrow,
    ),
    Fault(name="lag-metadata", family="topic", percent=40, most=3, draw=_lag),
)
