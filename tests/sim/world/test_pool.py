"""Equal values that come soon after each other are one object; what has not come for long is forgotten."""

from __future__ import annotations

from sim.world.pool import Pool


def fresh(number: int) -> str:
    """Return a text that is an object of its own."""
    return "".join(["value-", str(number)])


def test_equal_values_are_one_object() -> None:
    pool = Pool[str]()
    first = pool.shared(fresh(1))
    for number in range(2, 500):
        pool.shared(fresh(number))
    assert pool.shared(fresh(1)) is first


def test_value_that_is_asked_for_again_stays() -> None:
    pool = Pool[str]()
    first = pool.shared(fresh(0))
    for number in range(1, 3_000):
        pool.shared(fresh(number))
        assert number % 400 or pool.shared(fresh(0)) is first


def test_value_that_has_not_come_for_long_is_forgotten() -> None:
    pool = Pool[str]()
    first = pool.shared(fresh(0))
    for number in range(1, 1_100):
        pool.shared(fresh(number))
    assert pool.shared(fresh(0)) is not first
    assert len(pool._newer) + len(pool._older) <= 1_024
