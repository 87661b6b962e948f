"""Draws the topics of a scenario, who writes to them and who reads them."""

from __future__ import annotations

from sim.swarm.choices import Choices, Part
from sim.swarm.profiles import Profile

NAMES = ("t", "u")
# A topic with so many partitions that its creation is a change of several batches in the metadata log; nobody uses it.
WIDE, _WIDE_PARTITIONS = "wide", 50
# In so many of a hundred producers a batch may be larger than a segment, and is refused.
_TOO_LARGE_PERCENT = 8
# In so many of a hundred topics that are not compacted, brokers refuse batches that producers then have to split.
_SPLIT_PERCENT = 30
# In so many of a hundred topics there is a second or so between two records: the next append sets nothing going that
# stands still, and leaders come and go that have appended nothing.
_QUIET_PERCENT = 20
# In so many of a hundred seeds a client creates, alters and deletes a topic of its own.
_ADMIN_PERCENT = 30
# What a batch with one record has beside its value, and what each record has, at most.
BATCH_OVERHEAD_BYTES, _RECORD_OVERHEAD_BYTES = 160, 40
# What a producer may ask of a network that loses messages: records a second, and records that fit into a batch. Each
# loss holds it up for one or two seconds.
_MOST_RATE, _LEAST_RECORDS = 40, 8
# The records without an outcome at which a producer waits; with 0 it never does. What is sent to a partition without a
# leader proves little, and all of it is worked off once there is one: a run spends its time on that.
_UNANSWERED = (16, 32, 32, 64, 64, 0)
# The most records a second of all producers together. A run costs nearly as much as it has records, and what shows with
# more of them shows with so many.
_MOST_TOGETHER = 150


def draw_workload(
    choices: Choices, brokers: int, profile: Profile, *, least_replicas: int = 1, may_be_wide: bool = False,
    is_lossy: bool = False,
) -> Part:  # fmt: skip
    """Returns `topics` and their clients for a cluster of that many brokers.

    Each partition has `least_replicas` or more. Where the network `is_lossy`, a producer sends what it can repeat.
    """
    assert 1 <= least_replicas <= brokers, (least_replicas, brokers)
    topics: dict[str, Part] = {}
    producers: list[Part] = []
    consumers: list[Part] = []
    seekers: list[Part] = []
    # Where all topics are flushed, a run within the budget may lose power too.
    is_durable = choices.chance(40, "all flushed")
    # In all topics or in none: faults that need unclean elections aim at any of them.
    is_unclean = profile.excuses and choices.chance(60, "unclean")
    for name in NAMES[: choices.pick((1, 1, 2), "topics")]:
        own = choices.within("topic", name)
        replicas = max(least_replicas, min(brokers, own.pick((1, 2, 3, 3, 3, 4), "replicas")))
        topics[name] = _topic(own, replicas, is_unclean=is_unclean, is_durable=is_durable)
        if name != NAMES[0] and own.chance(25, "is created by a step"):
            topics[name]["exists"] = False
        is_compacted = "compact" in str(topics[name]["config"])
        is_quiet = own.chance(_QUIET_PERCENT, "is quiet")
        for number in range(own.pick((1, 1, 2), "producers")):
            each = own.within("producer", number)
            producer = _producer(each, name, is_durable=is_durable, is_compacted=is_compacted)
            if is_lossy:
                producer["batch"] = _roomy_batch(producer)
            producer = _fitting(each, producer, topics[name])
            if is_lossy:
                producer["rate"] = _bearable_rate(producer)
            if is_quiet:
                producer["rate"] = f"{each.pick((1, 1, 2, 4), 'quiet rate')}/s"
            producers.append(producer)
        # Where messages are lost, a producer could not keep its rate with smaller batches.
        if not is_compacted and not is_lossy and own.chance(_SPLIT_PERCENT, "splits batches"):
            mine = [each for each in producers if each["topic"] == name]
            topics[name] = _splitting(own, topics[name], mine)
        consumers.append(_consumer(own, name))
        if own.chance(45, "is sought"):
            seekers.append(_seeker(own, name))
    if may_be_wide and choices.chance(25, "wide topic"):
        topics[WIDE] = {"partitions": _WIDE_PARTITIONS, "replicas": 1}
    clients: Part = {"producers": _bounded(producers), "consumers": consumers}
    if seekers:
        clients["seekers"] = seekers
    if choices.chance(_ADMIN_PERCENT, "is administered"):
        clients["admins"] = [{"every": f"{choices.scale(150, 900, 'administer every')}ms"}]
    return {"topics": topics} | clients


def _topic(choices: Choices, replicas: int, *, is_unclean: bool, is_durable: bool) -> Part:
    return {
        # With six of them each broker leads several.
        "partitions": choices.pick((1, 1, 1, 2, 2, 3, 6), "partitions"),
        "replicas": replicas,
        "config": _replication(choices, replicas, is_unclean=is_unclean, is_durable=is_durable)
        | _segments(choices.within("segments"))
        | _cleaning(choices.within("cleaning")),
    }


def _replication(choices: Choices, replicas: int, *, is_unclean: bool, is_durable: bool) -> Part:
    config: Part = {"min.insync.replicas": choices.between(1, replicas, "min in sync")}
    if choices.chance(8, "more than there are"):
        # A partition has fewer replicas than that: all of them have to be in sync then, and no more.
        config["min.insync.replicas"] = replicas + 1
    if is_unclean:
        config["unclean.leader.election.enable"] = True
        # A leader without followers commits nothing, and nobody reads from it, where more must be in sync.
        if choices.chance(60, "one is enough"):
            config["min.insync.replicas"] = 1
    if is_durable or choices.chance(15, "flushed"):
        config["flush.messages"] = 1
    elif choices.chance(20, "flushed in time"):
        config["flush.ms"] = choices.scale(50, 2_000, "flush ms")
    return config


def _segments(choices: Choices) -> Part:
    config: Part = {"segment.bytes": choices.scale(1 << 10, 1 << 18, "bytes")}
    if choices.chance(40, "index interval"):
        config["index.interval.bytes"] = choices.scale(64, 8_192, "interval")
    if choices.chance(15, "small index"):
        config["segment.index.bytes"] = choices.scale(12, 4_096, "index bytes")
    if choices.chance(20, "aged"):
        config["segment.ms"] = choices.scale(500, 5_000, "age")
    if choices.chance(15, "codec"):
        config["compression.type"] = choices.pick(("gzip", "snappy", "lz4", "zstd", "uncompressed"), "which")
    if choices.chance(12, "whole length"):
        config["preallocate"] = True
    if choices.chance(10, "append time"):
        config["message.timestamp.type"] = "LogAppendTime"
    return config


def _cleaning(choices: Choices) -> Part:
    """Returns the properties of retention and compaction."""
    policy = choices.pick(("delete", "delete", "delete", "compact", "compact,delete"), "policy")
    config: Part = {}
    if policy != "delete":
        config |= {
            "cleanup.policy": policy,
            "min.cleanable.dirty.ratio": choices.pick(("0.01", "0.1", "0.5"), "dirty"),
        }
        if choices.chance(60, "tombstones go"):
            config["delete.retention.ms"] = choices.pick((0, 200, 1_000), "delete retention ms")
        if choices.chance(20, "cleaned late"):
            config["min.compaction.lag.ms"] = choices.scale(50, 1_500, "compaction lag")
        if choices.chance(25, "cleaned by then"):
            # No less than the other one may be.
            config["max.compaction.lag.ms"] = choices.scale(1_500, 5_000, "most compaction lag")
            if choices.chance(50, "not before"):
                # However much of it is dirty, nothing is compacted before.
                config["min.cleanable.dirty.ratio"] = "1"
    if policy != "compact" and choices.chance(45, "aged out"):
        config["retention.ms"] = choices.scale(500, 8_000, "retention ms")
    if policy != "compact" and choices.chance(25, "sized out"):
        config["retention.bytes"] = choices.scale(8_000, 200_000, "retention bytes")
    if choices.chance(50, "file delete delay"):
        config["file.delete.delay.ms"] = choices.pick((0, 200, 1_000, 60_000), "delay")
    return config


def _consumer(choices: Choices, topic: str) -> Part:
    """Returns consumers; some wait for more than there is, longer than brokers may let them."""
    consumer: Part = {"topic": topic, "clients": choices.pick((1, 1, 2), "consumers")}
    if choices.chance(40, "waits"):
        # With no wait at all a consumer asks as often as its network lets it, and a seed costs ten times as much. Its
        # requests time out after 1.5 s, of which drifting clocks take a twentieth at each end.
        consumer["max_wait"] = f"{choices.pick((20, 20, 600, 1_200, 1_250), 'max wait')}ms"
        consumer["min_bytes"] = f"{choices.pick((1, 5_000, 100_000), 'min bytes')} B"
    return consumer


def _seeker(choices: Choices, topic: str) -> Part:
    """Returns a client that looks up places; most also seek offsets that the log may not have."""
    seeker: Part = {"topic": topic, "every": f"{choices.scale(40, 400, 'seek every')}ms"}
    if choices.chance(70, "guesses"):
        seeker["out_of_range"] = choices.pick(("earliest", "latest", "none"), "out of range")
    return seeker


def _producer(choices: Choices, topic: str, *, is_durable: bool, is_compacted: bool) -> Part:
    acks = choices.pick(("all", "all", "all", "all", 1, 0), "acks")
    if is_durable and acks == 1:
        acks = "all"
    producer: Part = {
        "topic": topic,
        "clients": choices.pick((1, 1, 2), "clients"),
        "rate": f"{choices.scale(10, 120, 'rate')}/s",
        "acks": acks,
        "idempotent": choices.chance(80, "idempotent") and acks == "all",
        "size": f"{choices.scale(10, 4_000, 'size')} B",
        "linger": f"{choices.pick((0, 0, 2, 10, 50), 'linger')}ms",
        "batch": f"{choices.scale(200, 16_384, 'batch')} B",
    }
    if is_compacted or choices.chance(30, "keyed"):
        producer["keys"] = choices.scale(1, 64, "keys")
        if choices.chance(50, "has tombstones"):
            producer["tombstones"] = f"{choices.pick((10, 30, 80), 'tombstones')}%"
    if choices.chance(30, "in flight"):
        producer["in_flight"] = choices.between(1, 5, "requests")
    if unanswered := choices.pick(_UNANSWERED, "unanswered"):
        producer["unanswered"] = unanswered
    if choices.chance(30, "gives up soon"):
        producer["delivery_timeout"] = choices.pick(("2s", "2s", "3s", "5s"), "gives up after")
    return producer


def _roomy_batch(producer: Part) -> str:
    """Returns the batch of a producer where each lost message holds up those after it: several records fit into it."""
    size_bytes = _number(producer["size"]) + _RECORD_OVERHEAD_BYTES
    return f"{max(_number(producer['batch']), _LEAST_RECORDS * size_bytes)} B"


def _bearable_rate(producer: Part) -> str:
    """Returns the rate that a producer can keep there, which is less where a segment has room for few records a batch.

    Above that its records wait in a queue that only grows until they time out, which proves nothing and takes long.
    """
    size_bytes = _number(producer["size"]) + _RECORD_OVERHEAD_BYTES
    records = min(_LEAST_RECORDS, max(1, _number(producer["batch"]) // size_bytes))
    return f"{min(_number(producer['rate']), max(1, _MOST_RATE * records // _LEAST_RECORDS))}/s"


def _bounded(producers: list[Part]) -> list[Part]:
    """Returns the producers, each slower by the same share where they would send too many records together."""
    together = sum(_number(each["rate"]) * _number(each["clients"]) for each in producers)
    if together <= _MOST_TOGETHER:
        return producers
    return [
        each | {"rate": f"{max(1, _number(each['rate']) * _MOST_TOGETHER // together)}/s"}
        for each in producers
    ]


def _fitting(choices: Choices, producer: Part, topic: Part) -> Part:
    """Returns the producer with batches that fit into a segment of the topic, as brokers want it, but for a few."""
    if choices.chance(_TOO_LARGE_PERCENT, "too large"):
        return producer
    config = topic["config"]
    assert isinstance(config, dict), config
    most_bytes = int(config["segment.bytes"]) - BATCH_OVERHEAD_BYTES
    size_bytes, batch_bytes = _number(producer["size"]), _number(producer["batch"])
    return producer | {
        "size": f"{min(size_bytes, most_bytes)} B",
        "batch": f"{min(batch_bytes, most_bytes)} B",
    }


def _splitting(choices: Choices, topic: Part, producers: list[Part]) -> Part:
    """Returns the topic with a `max.message.bytes` that a record or a few of them fit.

    Its producers linger from now on, so that they have batches of more.
    """
    config = topic["config"]
    assert isinstance(config, dict), config
    size_bytes = max(_number(each["size"]) for each in producers)
    limit_bytes = size_bytes + BATCH_OVERHEAD_BYTES + choices.below(size_bytes + 1, "room for more")
    for number, each in enumerate(producers):
        each["linger"] = choices.within(number).ms((20, 100, 300), "linger")
    return topic | {"config": config | {"max.message.bytes": limit_bytes}}


def _number(value: object) -> int:
    """Returns the number of a value such as `64 B` or `50/s`."""
    return int(str(value).split(" ", maxsplit=1)[0].removesuffix("/s"))
