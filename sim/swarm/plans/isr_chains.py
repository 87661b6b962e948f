"""Chains about who is in sync: followers that copy too slowly or have less than others, and leaders left alone."""

from __future__ import annotations

from sim.scenario.settings import SETTINGS
from sim.swarm.choices import Choices, Part
from sim.swarm.plans.disks import end_of
from sim.swarm.plans.ground import DOWN_MS, Fault, Ground, chain, has_followers
from sim.swarm.plans.topics import MIN_IN_SYNC, UNCLEAN, changes_of

_LAG = "replica.lag.time.max.ms"
SESSION = "broker.session.timeout.ms"
_FETCHED = "replica.fetch.max.bytes"
# A partition's share of a fetch that holds a few batches only.
_FEW_BYTES = 4_096


def setting(ground: Ground, name: str) -> int:
    """Returns a time of the cluster's nodes, in milliseconds."""
    return int(ground.scenario.cluster.settings.get(name, SETTINGS[name]))


def _when_alone(ground: Ground, partition: str) -> Part:
    """Returns the moment when the in-sync set is the leader alone: the sessions of the others have expired."""
    return {"when": f"isr({partition}) < 2", "within": f"{setting(ground, SESSION) + 2_000}ms"}


def _slow_copier(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a follower that does not keep up for longer than it may, while its broker is alive.

    It hears nothing from its leader, or what it fetches takes long: it asks again and again and is always behind. In
    some seeds the leader does not hear what became of its proposals, which it makes for all its partitions at once.
    """
    partition = ground.partition(choices, lasting=True)
    lag_ms = setting(ground, _LAG)
    lasting = f"{lag_ms * 3 // 2 + choices.pick((1_300, 2_000), 'longer')}ms"
    link = f"follower({partition}) <-> leader({partition})"
    fetches_little = ground.scenario.cluster.settings.get(_FETCHED, 1 << 20) <= _FEW_BYTES
    unheard: list[Part] = []
    if choices.chance(35, "unheard"):
        answers: Part = {"share": "100%", "only": "AlterPartition", "for": lasting}
        unheard = [{"lose": f"controller -> leader({partition})"} | answers]
    if not fetches_little and choices.chance(60, "cut"):
        return [{"cut": link, "for": lasting}, *unheard]
    by_ms = choices.pick((40, 150, 400), "by") if fetches_little else lag_ms
    return [{"slow": link, "by": f"{by_ms}ms", "for": lasting}, *unheard]


def _unheard_leader(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader from which a member of the in-sync set never fetches, from its election on.

    The leader before stops or dies when its two followers do not hear each other any more, and both are in sync.
    """
    partition = ground.partition(choices, lasting=True)
    lag_ms, session_ms = setting(ground, _LAG), setting(ground, SESSION)
    how = choices.pick(("stop", "stop", "kill"), "how")
    # The election after a death comes when the session of the leader is over.
    elected_ms = session_ms if how == "kill" else 300
    lasting = f"{elected_ms + lag_ms * 3 // 2 + choices.pick((1_300, 2_000), 'longer')}ms"
    end: Part = {how: f"leader({partition})", "down": choices.ms((800, 3_000, 8_000), "down")}
    return [
        {"cut": f"follower({partition}, 1) <-> follower({partition}, 2)", "for": lasting},
        {"at": f"+{choices.pick((1, 100), 'gap')}ms"} | end,
    ]


def _unequal_leaders(ground: Ground, choices: Choices) -> list[Part]:
    """Returns leaders that follow each other fast, the next one with fewer records, and one that hears nothing of it.

    The follower that is elected first has missed the last records. It leads for a moment, in an epoch of which the
    other follower, the next leader, never learns. Where no client finds it, that epoch has no records; it is forgotten
    by a start, so such a leader is fenced and lives on.
    """
    partition = ground.partition(choices, lasting=True)
    # Who misses more than the lag time allows is not in sync, and is not elected.
    lag_ms = setting(ground, _LAG)
    missed_ms = min(2_000, lag_ms * choices.pick((25, 40, 60), "missed") // 100)
    # Clients need a while to find a new leader, and who fetches nothing from it is not in sync for long.
    leads_ms = min(lag_ms * 9 // 10, choices.pick((900, 1_500, 2_500), "leads for"))
    end: Part = {"kill": "N", "down": choices.ms((300, 1_000, 3_000), "down again")}
    unheard: list[Part] = []
    if choices.chance(40, "unheard"):
        unheard = [{"cut": "clients <-> A", "for": "7s"}]
        end = {"cut": "N <-> controller", "for": f"{setting(ground, SESSION) + 900}ms"}
        leads_ms = choices.pick((300, 500, 900), "leads unheard for")
    return [
        {"pick": f"leader({partition})", "as": "L"},
        {"pick": f"follower({partition}, 1)", "as": "A"},
        {"pick": f"follower({partition}, 2)", "as": "B"},
        *unheard,
        {"cut": "A <-> L", "for": "4s"},
        {"cut": "A <-> B", "for": choices.ms((5_000, 8_000), "apart for")},
        {"at": f"+{missed_ms}ms", "kill": "L", "down": choices.ms((2_500, 8_000), "down")},
        {"when": f"elected({partition})", "within": "5s", "pick": "A", "as": "N"},
        {"at": f"+{leads_ms}ms"} | end,
    ]


def _last_log_fails(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader that is left alone, and whose log then fails while its broker goes on with other directories.

    The others come back, or its broker starts again: nobody may lead by a log that cannot be read.
    """
    partition = ground.partition(choices, lasting=True)
    follower: Part = {"kill": f"follower({partition})", "down": choices.ms((3_000, 5_000), "down")}
    steps: list[Part] = [{"pick": f"leader({partition})", "as": "L"}]
    steps += [follower] * (ground.replicas(partition) - 1)
    steps += [_when_alone(ground, partition) | {"break_disk": "L", "log": partition}]
    if choices.chance(50, "again"):
        at: Part = {"at": f"+{choices.pick((300, 1_000), 'to end')}ms"}
        steps.append(at | {"kill": "L", "down": choices.ms(DOWN_MS, "leader down")})
    return steps


def _log_fails(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a broker that loses the directory of one log and goes on, beside another end or without."""
    partition = ground.partition(choices, lasting=True)
    victim = choices.pick(("leader", "follower"), "victim")
    steps: list[Part] = [{"break_disk": f"{victim}({partition})", "log": partition, "as": "V"}]
    if choices.chance(60, "end"):
        at: Part = {"at": f"+{choices.pick((1, 300, 1_500), 'to end')}ms"}
        steps.append(at | end_of(ground, choices, choices.pick(("V", f"leader({partition})"), "whose")))
    return steps


def _alone_again(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader that is left alone, is fenced, and is elected again before it has heard of either.

    What waits at it is of an epoch that has ended, although it leads before and after.
    """
    partition = ground.partition(choices, lasting=True)
    fenced_ms = setting(ground, SESSION) + 700
    follower: Part = {"kill": f"follower({partition})", "down": choices.ms((3_000, 8_000), "down")}
    steps: list[Part] = [{"pick": f"leader({partition})", "as": "L"}]
    steps += [follower] * (ground.replicas(partition) - 1)
    return [
        *steps,
        _when_alone(ground, partition) | {"cut": "L <-> controller", "for": f"{fenced_ms}ms"},
        {"lag_metadata": "L", "for": f"{fenced_ms + choices.pick((800, 1_500), 'longer')}ms"},
    ]


def fate_of_joiner(ground: Ground, choices: Choices, partition: str) -> Part:
    """Returns what becomes of the joiner, F, while its proposal is on its way."""
    fates = ("stop", "kill", "slow", "break")
    # A broker with one directory ends with it.
    match choices.pick(fates if ground.scenario.cluster.directories > 1 else fates[:3], "then"):
        case "break":
            return {"break_disk": "F", "log": partition}
        case "slow":
            return {"slow": f"F <-> leader({partition})", "by": "400ms", "for": "3s"}
        case verb:
            return {verb: "F", "down": choices.ms((1, 100, 800, 3_000), "down")}


def _held_proposal(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a proposal that a follower joins which is kept back, and what becomes of the joiner meanwhile.

    When it arrives, the joiner shuts down or is in another life, and the controller refuses it. Or it is the answer
    that is kept back, and the leader does not know the outcome when the joiner ends. It makes the proposal again for
    the life that has come so far, whether it has heard of the next one by a fetch of it or by metadata only. In some
    seeds the joiner lives on, and falls behind.
    """
    partition = ground.partition(choices, lasting=True)
    fate = fate_of_joiner(ground, choices, partition)
    if choices.chance(70, "stops"):
        fate = {"stop": "F", "down": choices.ms((1, 300, 3_000), "stopped for")}
    # Another life is registered when the session of the earlier one is over; who stops says so at once. The longest
    # times are above the time-out of the proposal, which is then made again beside a joiner in another life.
    if "stop" in fate:
        held_ms = choices.pick((200, 2_200, 3_900, 3_900, 3_900), "held")
    else:
        held_ms = setting(ground, SESSION) + choices.pick((900, 2_000), "held longer")
    link = choices.pick(("L -> controller",) * 4 + ("controller -> L",), "kept back")
    clog: Part = {"clog": link, "only": "AlterPartition", "for": "8s"}
    unheard: list[Part] = []
    if "stop" in fate and choices.chance(15, "unheard"):
        unheard, fate, held_ms = [{"cut": "F -> L", "for": "5s"}], fate | {"down": "300ms"}, 4_000
    elif choices.chance(25, "lags"):
        # It lags for longer than it may, and may be a member by now: nothing is committed without it.
        held_ms = setting(ground, _LAG) + choices.pick((900, 2_000), "lags for")
        fate, clog = {"cut": "F <-> L", "for": f"{held_ms + 500}ms"}, clog | {"for": "12s"}
    # A new life of the follower is out of the in-sync set, and joins again: at once after a stop in order.
    end = choices.pick(("kill", "stop", "stop", "stop"), "first end")
    return [
        {"pick": f"leader({partition})", "as": "L"},
        {end: f"follower({partition})", "down": choices.ms((1, 50, 300), "first down"), "as": "F"},
        {"when": f"isr({partition}) < {ground.replicas(partition)}", "within": "5s"} | clog,
        {"when": f"joining({partition})", "within": "6s"} | fate,
        *unheard,
        {"at": f"+{held_ms}ms", "heal": link},
    ]


def _dies_alone(ground: Ground, partition: str, *, others: Part, leader: Part) -> list[Part]:
    """Returns a leader, L, that dies as the only one in sync, and a follower, F, that is back soon without its records.

    `others` and `leader` say how long the other followers and the leader are down.
    """
    numbers = range(2, ground.replicas(partition))
    followers: list[Part] = [{"kill": f"follower({partition}, {number})"} | others for number in numbers]
    return [
        {"pick": f"leader({partition})", "as": "L"},
        {"kill": f"follower({partition}, 1)", "as": "F"},
        *followers,
        _when_alone(ground, partition) | {"kill": "L"} | leader,
        {"at": "+100ms", "restart": "F"},
    ]


def _allowed_late(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a partition whose leader has died alone, and a topic that allows unclean elections only after that.

    A replica without the last records is back by then: it leads as soon as it may.
    """
    partition = ground.partition(choices, lasting=True)
    topic = partition.rpartition("/")[0]
    # Nobody leads once the session of the dead leader is over.
    allowed_ms = setting(ground, SESSION) + choices.pick((300, 900), "allowed")
    return [
        {"alter_topic": topic, "config": {UNCLEAN: False}},
        *_dies_alone(ground, partition, others={}, leader={}),
        {"at": f"+{allowed_ms}ms", "alter_topic": topic, "config": {UNCLEAN: True}},
    ]


def _altered_leaderless(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a partition that nobody may lead, and a topic whose properties change then.

    The last leader has died alone, and who is back was not in sync any more: no change is a reason to elect it.
    """
    partition = ground.partition(choices, lasting=True)
    topic, session_ms = partition.rpartition("/")[0], setting(ground, SESSION)
    altered_ms = session_ms + choices.pick((300, 900), "altered")
    change: Part = {"alter_topic": topic, "config": choices.pick(changes_of(ground, topic), "change")}
    others, leader = f"{2 * session_ms + 3_000}ms", f"{altered_ms + 1_500}ms"
    return [
        *_dies_alone(ground, partition, others={"down": others}, leader={"down": leader}),
        {"at": f"+{altered_ms}ms"} | change,
    ]


def _both_join(ground: Ground, choices: Choices) -> list[Part]:
    """Returns two followers that join again one after the other, while their leader reads no metadata.

    It learns of the first by the answer to its proposal, and the metadata about that comes while the second proposal is
    on its way.
    """
    partition = ground.partition(choices, lasting=True)
    down = f"{setting(ground, SESSION) + 400}ms"
    known = choices.pick((300, 700), "known after")
    held: Part = {"clog": "L -> controller", "only": "AlterPartition", "for": f"{known + 600}ms"}
    return [
        {"pick": f"leader({partition})", "as": "L"},
        {"kill": f"follower({partition}, 1)", "down": down, "as": "F"},
        {"kill": f"follower({partition}, 2)", "down": down, "as": "G"},
        _when_alone(ground, partition) | {"cut": "F <-> L", "for": "2500ms"},
        {"cut": "G <-> L", "for": "2500ms"},
        {"when": f"joining({partition})", "within": "6s", "lag_metadata": "L", "for": f"{known}ms"},
        {"when": f"isr({partition}) >= 2", "within": "5s"} | held,
    ]


def _held_stop(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a broker that stops in order while another one reads no metadata, and must wait for it.

    In some seeds the controller is another process before it may end.
    """
    partition = ground.partition(choices, lasting=True)
    lasting = choices.ms((1_500, 3_000, 5_000), "for")
    who = choices.pick(("leader", "follower"), "who")
    steps: list[Part] = [
        {"pick": f"{who}({partition})", "as": "S"},
        {"lag_metadata": f"{'follower' if who == 'leader' else 'leader'}({partition})", "for": lasting},
        {"at": f"+{choices.pick((1, 300), 'gap')}ms", "stop": "S", "down": choices.ms(DOWN_MS, "down")},
    ]
    if choices.chance(40, "next controller"):
        soon: Part = {"at": f"+{choices.pick((100, 400, 900), 'soon')}ms"}
        steps.append(soon | {"kill": "controller", "down": choices.ms((1, 50), "controller down")})
    return steps


def _busy_controller_stops(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a controller that stops in order while its disk is at work, so that it refuses what still reaches it.

    A change of a topic is on its way to the disk, or a snapshot that came after it, and the proposal of a leader, whose
    link is slow, on its way to the controller.
    """
    partition = ground.partition(choices, lasting=True)
    replicas, session_ms = ground.replicas(partition), setting(ground, SESSION)
    slow_ms = choices.pick((20, 60, 150), "slow")
    gap_ms = choices.pick((1, 5, 20, slow_ms + 10, 2 * slow_ms), "gap")
    shorter = {"segment.bytes": choices.between(10_000, 60_000, "segment")}
    altered: Part = {"alter_topic": partition.rpartition("/")[0], "config": shorter}
    fenced: Part = {"when": f"isr({partition}) < {replicas}", "within": f"{session_ms + 2_000}ms"}
    return [
        {"pick": f"leader({partition})", "as": "L"},
        {"kill": f"follower({partition})", "down": f"{session_ms + 1_000}ms"},
        fenced | {"slow_disk": "controller", "by": f"{slow_ms}ms", "for": "4s"},
        {"slow": "L -> controller", "by": f"{slow_ms}ms", "for": "4s"},
        {"when": f"joining({partition}) >= 1", "within": "4s"} | altered,
        {"at": f"+{gap_ms}ms", "stop": "controller", "down": choices.ms((1, 300), "down")},
    ]


def _left_in_doubt(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a leader that refuses what it has appended, as it leads no more, and a next one that no client reaches.

    One follower has the records and another has not, so that nothing is committed. A producer that drops its records
    before it reaches the next leader cannot know what becomes of them.
    """
    partition = ground.partition(choices, lasting=True)
    lasting = choices.ms((2_500, 4_000, 5_500), "unreachable for")
    unreachable: list[Part] = [{"cut": f"clients <-> {name}", "for": lasting} for name in ("F", "G")]
    return [
        {"pick": f"leader({partition})", "as": "L"},
        {"pick": f"follower({partition}, 1)", "as": "F"},
        {"pick": f"follower({partition}, 2)", "as": "G"},
        *unreachable,
        {"cut": f"{choices.pick(('F', 'G'), 'behind')} <-> L", "for": "2s"},
        {"at": f"+{choices.pick((100, 300, 600), 'gap')}ms", "stop": "L", "down": "3s"},
    ]


def _promised_late(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a topic that promises flushes from now on: what its replicas have not flushed yet is flushed then.

    A leader or a follower ends soon after that.
    """
    topic = choices.pick(_unpromised(ground), "topic")
    partition = f"{topic}/{choices.below(ground.scenario.topics[topic].partitions, 'partition')}"
    gap: Part = {"at": f"+{choices.pick((300, 800, 1_500), 'gap')}ms"}
    return [
        {"alter_topic": topic, "config": {"flush.messages": 1}},
        gap | end_of(ground, choices, f"{choices.pick(('leader', 'follower'), 'who')}({partition})"),
    ]


def _unpromised(ground: Ground) -> tuple[str, ...]:
    """Returns the topics that no step deletes, with three replicas or more, that do not say when they are flushed."""
    topics = ground.scenario.topics
    return tuple(
        name
        for name in ground.lasting
        if topics[name].replicas >= 3 and topics[name].config.get("flush.messages") is None
    )


def _may_promise(ground: Ground) -> bool:
    return bool(_unpromised(ground))


def _eased(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a partition of which nothing is committed, as one replica is away, until its topic asks for fewer."""
    partition = ground.partition(choices, lasting=True)
    topic, replicas = partition.rpartition("/")[0], ground.replicas(partition)
    session_ms = setting(ground, SESSION)
    all_of_them: Part = {MIN_IN_SYNC: replicas}
    before = min(int(ground.scenario.topics[topic].config.get(MIN_IN_SYNC, 1)), replicas - 1)
    return [
        {"alter_topic": topic, "config": all_of_them},
        {"at": "+100ms", "kill": f"follower({partition})", "down": f"{session_ms + 2_500}ms"},
        {"when": f"isr({partition}) < {replicas}", "within": f"{session_ms + 2_000}ms"}
        | {"alter_topic": topic, "config": {MIN_IN_SYNC: before}},
    ]


def may_be_unclean(ground: Ground) -> bool:
    """Whether a step may allow unclean elections: losses are excused, and there are followers to lose."""
    return ground.profile.excuses and has_followers(ground)


def _has_directories(ground: Ground) -> bool:
    """Whether a broker goes on when the directory of a log that faults may aim at has failed."""
    return has_followers(ground) and ground.scenario.cluster.directories > 1


ISR_CHAINS: tuple[Fault, ...] = (
    chain("slow-copier", _slow_copier, possible=has_followers, lasts_ms=5_000),
    chain("unheard-leader", _unheard_leader, possible=has_followers, most=1, lasts_ms=5_000),
    chain("unequal-leaders", _unequal_leaders, possible=has_followers, most=4, lasts_ms=6_000),
    chain("alone-again", _alone_again, possible=has_followers, lasts_ms=5_500),
    chain("held-proposal", _held_proposal, possible=has_followers, percent=100, most=4, lasts_ms=4_500),
    chain("last-log-fails", _last_log_fails, possible=_has_directories, percent=60, most=4, lasts_ms=4_000),
    chain("log-fails", _log_fails, possible=_has_directories, percent=60, most=4),
    chain("promised-late", _promised_late, possible=_may_promise, percent=80),
    chain("eased", _eased, possible=has_followers, most=1, lasts_ms=4_500),
    chain("held-stop", _held_stop, possible=has_followers, lasts_ms=3_500),
    chain("busy-controller-stops", _busy_controller_stops, possible=has_followers, most=1, lasts_ms=5_500),
    chain("altered-leaderless", _altered_leaderless, possible=has_followers, most=1, lasts_ms=5_500),
    chain("both-join", _both_join, possible=has_followers, most=1, lasts_ms=6_000),
    chain("left-in-doubt", _left_in_doubt, possible=has_followers, most=1, lasts_ms=4_500),
    Fault(
        name="allowed-late",
        family="unclean",
        percent=60,
        most=2,
        draw=_allowed_late,
        is_possible=may_be_unclean,
        lasts_ms=5_000,
    ),
)
