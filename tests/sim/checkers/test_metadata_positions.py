"""After a damaged answer a broker reads on where the changes end that it has adopted."""

from __future__ import annotations

from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.metadata_positions import MetadataPositions


def reported(*steps: tuple[str, int, int]) -> list[str]:
    """Returns what is wrong: `damaged` is an answer to a broker, a number the offset from which it asks."""
    jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
    positions = MetadataPositions(jury)
    for what, broker, offset in steps:
        if what == "damaged":
            positions.on_damaged((broker, 1))
        else:
            positions.on_sent((broker, 1), offset, 7)
    assert all(each.checker == "metadata-positions" for each in jury.violations)
    return [each.what for each in jury.violations]


def test_what_came_before_the_damage_of_an_answer_is_read_again() -> None:
    assert reported(("damaged", 1, 0), ("asks", 1, 9)) == [
        "broker 1 asks for metadata from 9 on after a damaged answer; it has adopted what is below 7"
    ]
    assert not reported(("damaged", 1, 0), ("asks", 1, 7))


def test_the_rest_of_a_change_is_asked_for_where_no_answer_was_damaged() -> None:
    assert not reported(("damaged", 2, 0), ("asks", 1, 9))
    assert not reported(("damaged", 1, 0), ("asks", 1, 7), ("asks", 1, 9))
