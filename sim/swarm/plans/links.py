"""Faults of links: cut one way or both, halves that do not see each other, delay and loss."""

from __future__ import annotations

from sim.swarm.choices import Choices, Part
from sim.swarm.plans.ground import AWAY_MS, Fault, Ground

# The kinds of messages that a fault strikes alone; those of brokers travel between them, or from clients.
_METHODS = (
    ("Fetch",), ("Fetch",), ("Produce",), ("Fetch", "Produce"), ("Metadata", "InitProducerId"),
    ("AlterPartition",), ("AlterPartition",), ("BrokerHeartbeat",), ("FetchMetadata",),
    ("FetchMetadata", "AlterPartition"), ("RegisterBroker", "BrokerHeartbeat"), ("AllocateProducerIds",),
)  # fmt: skip
_OF_BROKERS = frozenset(("Fetch", "Produce", "Metadata"))


def _link(ground: Ground, choices: Choices) -> str:
    node = ground.node(choices)
    return choices.pick(
        (
            f"clients -> {node}",
            f"{node} -> clients",
            f"{node} <-> others",
            f"{node} -> others",
            f"others -> {node}",
        ),
        "link",
    )


def _cut(ground: Ground, choices: Choices) -> list[Part]:
    return [{"cut": _link(ground, choices), "for": choices.ms(AWAY_MS, "for")}]


def _cut_controller(ground: Ground, choices: Choices) -> list[Part]:
    """Returns a broker that the controller does not hear, or that does not hear the controller."""
    arrow = choices.pick(("->", "<-", "<->"), "arrow")
    broker = ground.broker(choices)
    link = f"controller -> {broker}" if arrow == "<-" else f"{broker} {arrow} controller"
    return [{"cut": link, "for": choices.ms(AWAY_MS, "for")}]


def _isolate(ground: Ground, choices: Choices) -> list[Part]:
    is_of_client = choices.chance(20, "client")
    step: Part = {"isolate": ground.client(choices) if is_of_client else ground.node(choices)}
    if choices.chance(30, "except") and not is_of_client:
        step["except"] = "clients"
    return [step | {"for": choices.ms(AWAY_MS, "for")}]


def _halves(ground: Ground, choices: Choices) -> list[Part]:
    """Returns two groups of brokers that do not see each other; both see the controller and the clients."""
    sides = [choices.chance(50, f"side of {number}") for number in range(1, ground.brokers + 1)]
    pairs = [
        (one + 1, two + 1) for one in range(ground.brokers) for two in range(one) if sides[one] != sides[two]
    ]
    lasting = choices.ms(AWAY_MS, "for")
    return [{"cut": f"broker {one} <-> broker {two}", "for": lasting} for one, two in pairs]


def _slow(ground: Ground, choices: Choices) -> list[Part]:
    by = f"{choices.scale(5, 1_500, 'by')}ms"
    return [{"slow": _link(ground, choices), "by": by, "for": choices.ms(AWAY_MS, "for")}]


def _lose(ground: Ground, choices: Choices) -> list[Part]:
    share = f"{choices.scale(2, 60, 'share')}%"
    return [{"lose": _link(ground, choices), "share": share, "for": choices.ms(AWAY_MS, "for")}]


def _lose_method(ground: Ground, choices: Choices) -> list[Part]:
    """Returns the loss of one kind of message, one way: only the requests, or only the answers."""
    method = choices.pick(
        ("AlterPartition", "BrokerHeartbeat", "FetchMetadata", "Fetch", "Produce"), "method"
    )
    node, is_back = ground.broker(choices), choices.chance(50, "back")
    other = "others" if method in ("Fetch", "Produce") else "controller"
    link = f"{other} -> {node}" if is_back else f"{node} -> {other}"
    share = choices.pick(("30%", "100%"), "share")
    return [{"lose": link, "share": share, "only": method, "for": choices.ms(AWAY_MS, "for")}]


def _clog(ground: Ground, choices: Choices) -> list[Part]:
    return [{"clog": _link(ground, choices), "for": choices.ms(AWAY_MS, "for")}]


def _link_of_methods(ground: Ground, choices: Choices) -> tuple[str, list[str]]:
    """Returns some methods, and a link that carries their requests or their answers, or both."""
    methods, broker = list(choices.pick(_METHODS, "methods")), ground.broker(choices)
    other = choices.pick(("others", "clients"), "other") if methods[0] in _OF_BROKERS else "controller"
    arrow = choices.pick(("->", "<-", "<->"), "arrow")
    return (f"{other} -> {broker}" if arrow == "<-" else f"{broker} {arrow} {other}"), methods


def _cut_methods(ground: Ground, choices: Choices) -> list[Part]:
    link, methods = _link_of_methods(ground, choices)
    return [{"cut": link, "only": methods, "for": choices.ms(AWAY_MS, "for")}]


def _clog_methods(ground: Ground, choices: Choices) -> list[Part]:
    link, methods = _link_of_methods(ground, choices)
    return [{"clog": link, "only": methods, "for": choices.ms(AWAY_MS, "for")}]


def _slow_methods(ground: Ground, choices: Choices) -> list[Part]:
    link, methods = _link_of_methods(ground, choices)
    by = f"{choices.scale(5, 1_500, 'by')}ms"
    return [{"slow": link, "by": by, "only": methods, "for": choices.ms(AWAY_MS, "for")}]


def _narrow(ground: Ground, choices: Choices) -> list[Part]:
    to = f"{choices.scale(2_000, 1_000_000, 'to')} B"
    return [{"narrow": _link(ground, choices), "to": to, "for": choices.ms(AWAY_MS, "for")}]


def _hang_up(ground: Ground, choices: Choices) -> list[Part]:
    return [{"hang_up": _link(ground, choices)}]


def _flip_bits(ground: Ground, choices: Choices) -> list[Part]:
    share = f"{choices.scale(1, 50, 'share')}%"
    return [{"flip_bits": _link(ground, choices), "share": share, "for": choices.ms(AWAY_MS, "for")}]


def _flip_structure(ground: Ground, choices: Choices) -> list[Part]:
    return [step | {"where": "structure"} for step in _flip_bits(ground, choices)]


def _flip_anywhere(ground: Ground, choices: Choices) -> list[Part]:
    return [step | {"where": "anywhere"} for step in _flip_bits(ground, choices)]


def _heal(ground: Ground, choices: Choices) -> list[Part]:
    return [{"heal": "all"}]


LINKS = (
    Fault(name="cut", family="net", percent=60, most=3, draw=_cut),
    Fault(name="cut-controller", family="net", percent=40, most=2, draw=_cut_controller),
    Fault(name="isolate", family="net", percent=50, most=3, draw=_isolate),
    Fault(
        name="halves", family="net", percent=25, most=1, draw=_halves,
        is_possible=lambda ground: ground.brokers > 1,
    ),
    Fault(name="slow", family="net", percent=40, most=3, draw=_slow),
    Fault(name="lose", family="net", percent=50, most=3, draw=_lose),
    Fault(name="lose-method", family="net", percent=40, most=2, draw=_lose_method),
    Fault(name="clog", family="net", percent=40, most=3, draw=_clog),
    Fault(name="cut-methods", family="net", percent=30, most=2, draw=_cut_methods),
    Fault(name="clog-methods", family="net", percent=40, most=3, draw=_clog_methods),
    Fault(name="slow-methods", family="net", percent=30, most=2, draw=_slow_methods),
    Fault(name="narrow", family="net", percent=30, most=2, draw=_narrow),
    Fault(name="hang-up", family="net", percent=40, most=3, draw=_hang_up),
    Fault(name="flip-bits", family="net", percent=20, most=2, draw=_flip_bits),
    Fault(name="flip-structure", family="net", percent=25, most=2, draw=_flip_structure),
    Fault(
        name="flip-anywhere", family="net", percent=15, most=1, draw=_flip_anywhere,
        is_possible=lambda ground: ground.profile.excuses,
    ),
    Fault(name="heal", family="net", percent=10, most=1, draw=_heal),
)  # fmt: skip
