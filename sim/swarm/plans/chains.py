"""Aimed faults and chains of them: each waits up to a second for a state, strikes, and may aim at what it struck.

The bugs that are left need two things to happen in turn: a follower that leaves the in-sync set and then a leader
that dies, or a leader that dies while another one truncates.
"""

from __future__ import annotations

from sim.swarm.choices import Choices, Part
from sim.swarm.plans.disks import end_of, keep_of, torn_append
from sim.swarm.plans.ground import AWAY_MS, DOWN_MS, Fault, Ground, chain, has_followers, has_unclean
from sim.swarm.plans.isr_chains import SESSION, fate_of_joiner, setting
from sim.swarm.plans.processes import inside
from sim.swarm.plans.topics import changes_of, flushed_change

_BOTH = ("follower", "leader")


def _after_ack(ground: Ground, choices: Choices) -> list[Part]:
    """Returns the end of a leader as soon as it has acknowledged a number of records."""
    partition = ground.partition(choices, lasting=True)
    when: Part = {"when": f"after-ack({partition}) >= {choices.scale(1, 300, 'records')}"}
    return [when | end_of(ground, choices, f"leader({partition})")]


def _torn_append(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a power loss within an append, of which a part reaches the disk, and perhaps an end in the recovery."""
    partition = ground.partition(choices, lasting=True)
    victim = f"{choices.pick(('leader', 'leader', 'follower'), 'who')}({partition})"
    down_ms = choices.pick((1, 300, 800), "down")
    write: Part = {
        "partial_write": victim,
        "log": partition,
        "down": f"{down_ms}ms",
        "as": "T",
    }
    steps: list[Part] = [write | torn_append(choices, "all")]
    if choices.chance(40, "again"):
        after: Part = {"at": f"+{down_ms + choices.scale(1, 900, 'lives for')}ms"}
        steps.append(after | end_of(ground, choices, "T"))
    return steps


def _in_truncation(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a change of leader, and the end of the new leader while followers truncate to it."""
    partition = ground.partition(choices, lasting=True)
    return [
        {"kill": f"leader({partition})", "down": choices.ms(DOWN_MS, "first down"), "as": "L"},
        {"when": f"truncated({partition})"} | end_of(ground, choices, f"leader({partition})"),
    ]


def _behind(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a follower that falls behind, and the end of the leader once the in-sync set is smaller."""
    partition = ground.partition(choices, lasting=True)
    lasting = choices.ms(AWAY_MS, "for")
    return [
        {"isolate": f"follower({partition})", "for": lasting, "as": "F"},
        {"when": f"isr({partition}) < {ground.replicas(partition)}", "within": "4s"}
        | end_of(ground, choices, f"leader({partition})"),
        {"at": f"+{choices.pick((1, 100, 500), 'heal')}ms", "heal": "F"},
    ]


def _old_leader_back(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader that is cut off from the other nodes, not from its clients, and comes back deposed."""
    partition = ground.partition(choices, lasting=True)
    lasting = choices.ms((500, 2_500, 5_400), "for")
    steps: list[Part] = [{"isolate": f"leader({partition})", "except": "clients", "for": lasting, "as": "L"}]
    if choices.chance(50, "then"):
        after: Part = {"at": f"+{choices.pick((500, 2_000, 3_000), 'after')}ms"}
        steps.append(after | end_of(ground, choices, f"leader({partition})"))
    return steps


def _leaders_in_turn(ground: Ground, choices: Choices) -> list[Part]:
    """Returns the ends of one leader after the other, so that epochs with few records follow each other.

    Or the second one is cut off as soon as it leads: it goes on, and comes back with an epoch that nobody else knows.
    """
    partition = ground.partition(choices, lasting=True)
    gap, down = choices.ms((5, 50, 400, 1_500, 2_500), "gap"), choices.ms(DOWN_MS, "down")
    kill: Part = {"kill": f"leader({partition})", "down": down}
    # A leader is elected when the session of the one before is over, and learns of it some milliseconds later.
    elected: Part = {"when": f"elected({partition})", "within": "4s", "pick": f"leader({partition})"}
    if choices.chance(40, "cut off"):
        soon: Part = {"at": f"+{choices.pick((5, 10, 20, 50), 'soon')}ms"}
        return [
            kill,
            elected,
            soon | {"isolate": f"leader({partition})", "for": choices.ms((2_500, 4_000), "cut")},
        ]
    steps: list[Part] = [kill]
    once_elected = [elected] if choices.chance(50, "once elected") else []
    for _ in range(choices.between(1, 3, "other leaders")):
        steps += [*once_elected, {"at": f"+{gap}"} | kill]
    return steps


def _missed_epochs(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a follower that is away while leaders follow each other, and then copies records of several epochs."""
    partition = ground.partition(choices, lasting=True)
    replicas = ground.replicas(partition)
    gap = choices.ms((100, 300, 600), "gap")
    pick: Part = {"pick": f"leader({partition})"}
    steps: list[Part] = [
        {"kill": f"follower({partition})", "as": "F"},
        {"when": f"isr({partition}) < {replicas}", "within": "4s"} | pick,
    ]
    for _ in range(choices.between(2, 3, "epochs")):
        steps += [
            {"at": f"+{gap}", "stop": f"leader({partition})", "down": "1ms"},
            {"when": f"elected({partition})", "within": "4s"} | pick,
            {"when": f"isr({partition}) >= {replicas - 1}", "within": "4s"} | pick,
        ]
    return [*steps, {"at": f"+{gap}", "restart": "F"}]


def _lag_then_end(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a broker that learns nothing, and the end of the leader, of whose successor it does not know."""
    partition = ground.partition(choices, lasting=True)
    lag: Part = {"lag_metadata": f"follower({partition})", "for": choices.ms((1_000, 3_000), "for")}
    gap: Part = {"at": f"+{choices.pick((1, 100, 500), 'gap')}ms"}
    return [lag, gap | end_of(ground, choices, f"leader({partition})")]


def _slow_then_end(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader whose disk is slow, and its end while answers wait for the disk."""
    partition = ground.partition(choices, lasting=True)
    by = f"{choices.scale(1_000, 50_000, 'by')}us"
    slow: Part = {"slow_disk": f"leader({partition})", "by": by, "for": "2s", "as": "S"}
    gap: Part = {"at": f"+{choices.pick((20, 200, 900), 'gap')}ms"}
    return [slow, gap | end_of(ground, choices, "S")]


def _late_first_fetch(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader that is replaced while only clients reach it, and that is active again before it can fetch.

    Its log has records that the new leader does not have, and its first fetch comes late, or in a later epoch.
    """
    partition = ground.partition(choices, lasting=True)
    lasting_ms = choices.pick((2_500, 4_000, 5_400), "for")
    longer = f"{lasting_ms + choices.pick((100, 600, 1_500), 'longer')}ms"
    steps: list[Part] = [
        {"isolate": f"leader({partition})", "except": "clients", "for": f"{lasting_ms}ms", "as": "L"}
    ]
    numbers = range(1, ground.brokers + 1)
    return steps + [{"cut": f"L <-> broker {number}", "for": longer} for number in numbers]


def _follower_then_leader(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a follower that is away for a moment, and the end of the leader about when it is back.

    The new leader knows little of what is committed when that follower wants to be in sync again. Or both followers do
    not see each other: then the new leader commits nothing for a while.
    """
    partition = ground.partition(choices, lasting=True)
    if choices.chance(40, "apart"):
        followers = f"follower({partition}, 1) <-> follower({partition}, 2)"
        after: Part = {"at": f"+{choices.pick((1, 100, 1_000), 'after')}ms"}
        cut: Part = {"cut": followers, "for": choices.ms((3_000, 5_000), "apart for")}
        return [cut, after | end_of(ground, choices, f"leader({partition})")]
    down_ms = choices.pick((1, 50, 300, 800), "down")
    gap: Part = {"at": f"+{down_ms + choices.scale(1, 400, 'gap')}ms"}
    follower: Part = {"kill": f"follower({partition})", "down": f"{down_ms}ms"}
    return [follower, gap | end_of(ground, choices, f"leader({partition})")]


def _stop_then_end(ground: Ground, choices: Choices) -> list[Part]:
    """Returns an orderly stop of a broker, and its end without one soon after it is back."""
    partition = ground.partition(choices, lasting=True)
    down_ms = choices.pick((1, 300, 800), "down")
    gap: Part = {"at": f"+{down_ms + choices.scale(200, 3_000, 'gap')}ms"}
    stop: Part = {"stop": f"leader({partition})", "down": f"{down_ms}ms", "as": "S"}
    return [stop, gap | end_of(ground, choices, "S")]


def _late_proposal(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a follower that may join the in-sync set again while leader and controller hardly hear each other.

    Or the leader hears no answer to its proposal, and replays no metadata, while its heartbeats go on.

    It may be in another life when the proposal arrives; the leader may end before it has an answer.
    """
    partition = ground.partition(choices, lasting=True)
    leader = f"leader({partition})"
    # A new life of the follower leaves the in-sync set at once.
    steps: list[Part] = [
        {"kill": f"follower({partition})", "down": choices.ms((1, 50, 300), "first down"), "as": "F"}
    ]
    when: Part = {"when": f"isr({partition}) < {ground.replicas(partition)}", "within": "4s"}
    match choices.pick(("slow", "cut", "deaf"), "how"):
        case "slow":
            by = f"{choices.pick((300, 800, 1_500), 'by')}ms"
            steps.append(when | {"slow": f"{leader} -> controller", "by": by, "for": "3s"})
        case "cut":
            steps.append(when | {"cut": f"controller -> {leader}", "for": choices.ms((1_000, 1_700), "for")})
        case _:
            lost_ms = choices.pick((1_700, 2_500, 3_500), "deaf for")
            answers: Part = {"share": "100%", "only": "AlterPartition", "for": f"{lost_ms}ms"}
            lag_ms = lost_ms + choices.pick((0, 1_000, 2_500), "lags longer by")
            steps.append(when | {"lose": f"controller -> {leader}"} | answers)
            joined: Part = {"when": f"isr({partition}) >= {ground.replicas(partition)}", "within": "3s"}
            steps.append(joined | {"lag_metadata": leader, "for": f"{lag_ms}ms"})
    gap: Part = {"at": f"+{choices.pick((200, 400, 800), 'gap')}ms"}
    steps.append(gap | fate_of_joiner(ground, choices, partition))
    if choices.chance(50, "end"):
        steps.append({"at": f"+{choices.pick((300, 1_000), 'to end')}ms"} | end_of(ground, choices, leader))
    return steps


def _changed_behind(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a follower that falls behind its leader, and copies the rest when the topic has other properties."""
    partition = ground.partition(choices, lasting=True)
    topic = partition.rpartition("/")[0]
    lasting_ms = choices.pick((1_000, 2_500), "for")
    smaller, *others = changes_of(ground, topic)
    # In most of the seeds what the follower is behind by does not fit into a segment any more.
    change = smaller if choices.chance(70, "smaller") else choices.pick(others, "change")
    change = flushed_change(ground, choices, topic) or change
    return [
        {"pick": f"leader({partition})", "as": "L"},
        {"cut": f"follower({partition}) <-> L", "for": f"{lasting_ms}ms"},
        {"at": f"+{choices.pick((500, lasting_ms - 100), 'gap')}ms", "alter_topic": topic, "config": change},
    ]


def _doubtful_sets(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader whose answers are lost, and a topic that takes smaller sets when they are sent again.

    What a producer splits then may be in the log already.
    """
    partition = ground.partition(choices, lasting=True)
    topic, link = partition.rpartition("/")[0], f"leader({partition}) -> clients"
    most_bytes = choices.pick((150, 400, 1_200), "most")
    return [
        {"cut": link, "for": "600ms"},
        {"at": f"+{choices.pick((150, 400), 'gap')}ms", "alter_topic": topic}
        | {"config": {"max.message.bytes": most_bytes}},
        {"at": "+100ms", "hang_up": f"leader({partition}) <-> clients"},
        {"at": "+1500ms", "alter_topic": topic, "config": {"max.message.bytes": ""}},
    ]


def _may_split(ground: Ground) -> bool:
    """Whether sets may be split: compaction wants whole records, and a network that loses them is slow."""
    return bool(ground.lasting) and not (
        any(map(ground.is_compacted, ground.lasting)) or ground.scenario.network.loss
    )


def _late_reader(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a broker that starts again and is slow to read the metadata, beside the end of a leader, or without."""
    partition = ground.partition(choices, lasting=True)
    lasting = choices.ms((1_000, 2_500, 5_000), "for")
    steps: list[Part] = [
        {
            "lag_metadata": f"{choices.pick(('leader', 'follower'), 'who')}({partition})",
            "for": lasting,
            "as": "R",
        },
        {choices.pick(("kill", "stop"), "how"): "R", "down": choices.ms((1, 50, 300), "down")},
    ]
    if choices.chance(50, "end"):
        steps.append(
            {"at": f"+{choices.pick((500, 1_500), 'to end')}ms"}
            | end_of(ground, choices, f"leader({partition})")
        )
    return steps


def _unanswered(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader whose answers to producers wait for a follower, and are then lost with those of others."""
    partition = ground.partition(choices, lasting=True)
    away_ms = choices.pick((800, 2_000, 3_000), "away")
    gap: Part = {"at": f"+{choices.pick((100, 600), 'gap')}ms"}
    steps: list[Part] = [
        {"pick": f"leader({partition})", "as": "L"},
        {"cut": f"follower({partition}) <-> L", "for": f"{away_ms}ms"},
    ]
    if choices.chance(50, "cut"):
        steps.append(gap | {"cut": "clients <-> L", "for": choices.ms((300, 1_500), "for")})
    else:
        by = choices.ms((400, 1_600), "by")
        steps.append(gap | {"slow": "L -> clients", "by": by, "for": "2s"})
    if choices.chance(30, "end"):
        steps.append({"at": "+1s"} | end_of(ground, choices, "L"))
    return steps


def _late_words(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a broker that is fenced because its words come late, dies, and is back before the last of them arrive.

    The others hear two lives of one broker at once, the earlier one after the present one.
    """
    partition = ground.partition(choices, lasting=True)
    victim = f"{choices.pick(('leader', 'follower', 'follower'), 'victim')}({partition})"
    to, by = choices.pick(("others", "others", "controller"), "to"), choices.ms((2_500, 3_500, 5_000), "by")
    back: Part = {"at": f"+{choices.pick((1, 20, 200), 'gap')}ms", "down": choices.ms((1, 50), "down")}
    if choices.chance(40, "power"):
        end: Part = {"power": "W", "keep": "all"}
    else:
        end = {"kill": "W"}
    return [
        {"pick": victim, "as": "W"},
        {"slow": f"W -> {to}", "by": by, "for": "6s"},
        {"when": f"isr({partition}) < {ground.replicas(partition)}", "within": "5s", "heal": "W"},
        back | end,
    ]


def _inside_a_job(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a death inside a job of a replica or a rename in its log, and in half of the seeds the end of a leader.

    By renames new segments take the place of old ones, and old ones leave the log.
    """
    partition = ground.partition(choices, lasting=True)
    is_compacted = ground.is_compacted(partition.rpartition("/")[0])
    target = f"{choices.pick(('leader', 'follower'), 'who')}({partition})"
    death: Part = {"kill_inside": target, "down": choices.ms((1, 300), "down")}
    if choices.chance(50, "renames"):
        death |= {"log": partition, "renames": True, "change": choices.between(1, 12, "rename")}
    else:
        death |= inside(choices, is_compacted=is_compacted)
    if choices.chance(50, "power"):
        death["keep"] = keep_of(ground, choices, target)
    if choices.chance(50, "end"):
        gap: Part = {"at": f"+{choices.pick((500, 1_500), 'gap')}ms"}
        return [death, gap | end_of(ground, choices, f"leader({partition})")]
    return [death]


def _half_swapped(ground: Ground, choices: Choices) -> list[Part]:
    """Returns two deaths between the last renames of a compaction: a start has to finish the swap of segments.

    Each segment that takes the place of others has four files that are swap files until then. The topic has short
    segments from now on, of which there soon are some to compact.
    """
    partition, altered = _compacted_soon(ground, choices)
    deaths = [_death_in_swap(ground, choices.within(who), f"{who}({partition})", partition) for who in _BOTH]
    return [altered, *deaths]


def _compacted_soon(ground: Ground, choices: Choices) -> tuple[str, Part]:
    """Returns a partition of a compacted topic, and the step because of which its brokers soon compact it."""
    names = [name for name in ground.lasting if ground.is_compacted(name)]
    name = choices.pick(names, "compacted topic")
    partition = f"{name}/{choices.below(ground.scenario.topics[name].partitions, 'partition')}"
    return partition, {
        "alter_topic": name,
        "config": {"segment.ms": 300, "min.cleanable.dirty.ratio": "0.01"},
    }


def _fails_compacting(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a broker that loses the directory of a compacted log when it compacts one, and goes on with others."""
    partition, altered = _compacted_soon(ground, choices)
    target = choices.pick(("leader", "follower"), "whose")
    return [altered, {"break_disk": f"{target}({partition})", "log": partition, "job": "compact"}]


def _death_in_swap(ground: Ground, choices: Choices, target: str, partition: str) -> Part:
    death: Part = {
        "kill_inside": target,
        "log": partition,
        "renames": True,
        "suffix": ".swap",
        # The first file is the log: only while that is a swap does the start have to find what it replaces.
        "change": choices.pick((1, 1, 1, 1, 2, 3, 4), "rename"),
        "down": choices.ms((1, 300), "down"),
    }
    return death | {"keep": keep_of(ground, choices, target)} if choices.chance(40, "power") else death


def _compacts(ground: Ground) -> bool:
    """Whether a log that faults may aim at is compacted."""
    return any(map(ground.is_compacted, ground.lasting)) and has_followers(ground)


def _compacts_in_several(ground: Ground) -> bool:
    """Whether a log that faults may aim at is compacted, by brokers that have several directories."""
    return _compacts(ground) and ground.scenario.cluster.directories > 1


def _cut_at_work(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader that learns a moment late that another one leads, while a slow job is at work on its log.

    Clients go on sending to it as long as the controller does not reach it, so its log is cut then. Where jobs are slow
    a leader is elected late, and the first records come later still.
    """
    partition = ground.partition(choices, lasting=True)
    lasting_ms = setting(ground, SESSION) + choices.pick((200, 500, 900), "longer")
    # Either its followers know the next leader first, or they get nothing of what it takes.
    lone: Part = {"isolate": "W", "except": "clients"}
    cut: Part = lone if choices.chance(50, "alone") else {"cut": "W <-> controller"}
    return [
        {"within": "3s", "pick": f"leader({partition})", "as": "W"},
        {"when": f"after-ack({partition}) >= 10", "within": "3s", "for": f"{lasting_ms}ms"} | cut,
    ]


def _damaged_news(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a follower that gets damaged metadata, and the end of the leader, of whose successor that tells.

    Or one that starts again meanwhile: what it reads then has many batches, of which the first are sound.
    """
    partition = ground.partition(choices, lasting=True)
    share = f"{choices.pick((30, 60, 100), 'share')}%"
    if choices.chance(55, "starts"):
        down = choices.ms((1, 100, 300), "back")
        start: Part = {"kill": f"follower({partition})", "down": down, "as": "F"}
        return [start, {"flip_bits": "controller -> F", "share": share, "for": "1500ms"}]
    damaged: Part = {"flip_bits": f"controller -> follower({partition})", "share": share}
    gap: Part = {"at": f"+{choices.pick((1, 300), 'gap')}ms"}
    if choices.chance(60, "stops"):
        end: Part = {"stop": f"leader({partition})", "down": choices.ms(DOWN_MS, "down")}
        return [damaged | {"for": choices.ms((500, 1_000, 2_000), "for")}, gap | end]
    # The news of an election comes when the session of the dead leader is over.
    return [
        damaged | {"for": choices.ms((2_500, 4_000), "for long")},
        gap | end_of(ground, choices, f"leader({partition})"),
    ]


def _damaged_copies(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a follower that gets damaged records, which it must refuse and ask for again."""
    partition = ground.partition(choices, lasting=True)
    share = f"{choices.pick((10, 30, 60), 'share')}%"
    lasting = choices.ms((500, 1_000, 2_000), "for")
    return [{"flip_bits": f"leader({partition}) -> follower({partition})", "share": share, "for": lasting}]


def _damaged_reads(ground: Ground, choices: Choices) -> list[Part]:
    """Returns consumers that have read nothing for a while, and get damaged records then, many batches at once."""
    partition = ground.partition(choices, lasting=True)
    unread_ms = choices.pick((600, 1_200, 2_000), "unread for")
    damaged: Part = {"flip_bits": "L -> clients", "share": f"{choices.pick((30, 60, 100), 'share')}%"}
    return [
        {"pick": f"leader({partition})", "as": "L"},
        {"clog": "L -> clients", "only": "Fetch", "for": f"{unread_ms}ms"},
        {"at": f"+{unread_ms - 10}ms"} | damaged | {"for": choices.ms((700, 1_500), "for")},
    ]


def _leaders_apart(ground: Ground, choices: Choices) -> list[Part]:
    """Returns two replicas that lead in turns by unclean elections, each without the records of the other.

    Where the first to end is the leader, the other one leads alone in an epoch that the first has never seen. The first
    is back while the other leads again, before retention has deleted what they differ in, or at the end.
    """
    partition = ground.partition(choices, lasting=True)
    first = choices.pick(("leader", "follower"), "first")
    over = choices.ms((700, 1_500, 2_500), "over")
    followers: list[Part] = [{"kill": f"follower({partition})"}] * (ground.replicas(partition) - 2)
    elected: Part = {"when": f"elected({partition})", "within": "5s", "pick": f"leader({partition})"}
    alone: Part = {"at": f"+{choices.ms((500, 1_000), 'alone')}"}
    return [
        *followers,
        {"kill": f"{first}({partition})", "as": "S"},
        *([elected] if first == "leader" else []),
        alone | {"kill": f"leader({partition})", "as": "L"},
        {"at": "+100ms", "restart": "S"},
        elected,
        {"at": f"+{over}", "kill": "S"},
        {"at": "+100ms", "restart": "L"},
        elected,
        {"at": f"+{choices.ms((1, 300, 1_500), 'back')}", "restart": "S"},
    ]


CHAINS = (
    chain("after-ack", _after_ack),
    chain("torn-append", _torn_append, most=4, possible=has_followers),
    chain("in-truncation", _in_truncation),
    chain("behind", _behind, possible=has_followers),
    chain("old-leader-back", _old_leader_back),
    chain("leaders-in-turn", _leaders_in_turn, most=1),
    chain("missed-epochs", _missed_epochs, percent=100, most=1, possible=has_followers, lasts_ms=6_000),
    chain("lag-then-end", _lag_then_end, possible=has_followers),
    chain("slow-then-end", _slow_then_end, percent=30),
    chain("late-first-fetch", _late_first_fetch, possible=has_followers),
    chain("follower-then-leader", _follower_then_leader, most=3, possible=has_followers),
    chain("stop-then-end", _stop_then_end, percent=30),
    chain("late-proposal", _late_proposal, possible=has_followers),
    chain("changed-behind", _changed_behind, most=3, possible=has_followers),
    chain("doubtful-sets", _doubtful_sets, most=1, possible=_may_split),
    chain("late-reader", _late_reader, most=1, possible=has_followers),
    chain("unanswered", _unanswered, possible=has_followers),
    chain("inside-a-job", _inside_a_job, percent=80, possible=has_followers),
    chain("half-swapped", _half_swapped, percent=100, most=8, possible=_compacts, lasts_ms=2_500),
    chain("fails-compacting", _fails_compacting, percent=100, most=4, possible=_compacts_in_several),
    chain("damaged-news", _damaged_news, percent=100, possible=has_followers),
    chain("damaged-copies", _damaged_copies, most=1, possible=has_followers),
    chain("damaged-reads", _damaged_reads, percent=70, most=3),
    chain("late-words", _late_words, most=1, possible=has_followers),
    Fault(
        name="cut-at-work",
        family="work",
        percent=100,
        most=4,
        draw=_cut_at_work,
        is_possible=has_followers,
        lasts_ms=4_500,
    ),
    Fault(
        name="leaders-apart",
        family="unclean",
        percent=60,
        most=5,
        draw=_leaders_apart,
        is_possible=has_unclean,
        lasts_ms=9_000,
    ),
)
