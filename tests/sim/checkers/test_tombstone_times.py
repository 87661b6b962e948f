"""Tombstones stay until the time that compaction has set for them, and no longer than the next round."""

from __future__ import annotations

from collections.abc import Sequence

from sim.checkers.chain import Mark
from sim.witness.tombstones import Round, Tombstones
from storage.batch import Record, RecordBatch, build_batch

ENDED = Round(10, 100, 105)


def batch(*records: tuple[int, bytes | None], may_go_ms: int | None = None) -> tuple[Mark, RecordBatch]:
    """Returns a batch of (offset, value) that was written again, with the mark of the original."""
    made = [Record(offset, 5, b"k", value) for offset, value in records]
    data = build_batch(made, base_offset=made[0].offset, delete_horizon_ms=may_go_ms)
    return Mark(made[0].offset, made[-1].offset + 1, 0, 77, len(made)), RecordBatch(data, 0, len(data))


def gone(*offsets: int, value: bytes | None = None) -> dict[int, Record]:
    return {offset: Record(offset, 5, b"k", value) for offset in offsets}


def looked(tombstones: Tombstones, batches: Sequence[tuple[Mark, RecordBatch]], ended: Round) -> str | None:
    return tombstones.look(1, batches, ended)


def test_cl17_the_first_round_sets_the_time() -> None:
    tombstones = Tombstones()
    assert looked(tombstones, [batch((3, None), may_go_ms=160)], ENDED) is None
    assert looked(tombstones, [batch((3, b"v"))], ENDED) is None
    what = looked(tombstones, [batch((3, None))], ENDED)
    assert what == "compaction set no time at which the tombstones at offset 3 may go"


def test_cl17_the_time_does_not_move() -> None:
    tombstones = Tombstones()
    assert looked(tombstones, [batch((3, None), may_go_ms=160)], ENDED) is None
    what = looked(tombstones, [batch((3, None), may_go_ms=170)], Round(10, 110, 111))
    assert what == "the tombstones at offset 3 might go at 160 ms, and after another compaction at 170 ms"


def test_cl16_a_tombstone_goes_no_earlier_than_its_time() -> None:
    tombstones = Tombstones()
    what = tombstones.gone_too_early(gone(3), ENDED)
    assert what == "the tombstone at offset 3 is gone, and no time was set at which it may go"
    looked(tombstones, [batch((3, None), may_go_ms=160)], ENDED)
    what = tombstones.gone_too_early(gone(3), Round(10, 158, 159))
    assert what == "the tombstone at offset 3 is gone at 159 ms, and may go at 160 ms"
    assert tombstones.gone_too_early(gone(3), Round(10, 160, 161)) is None
    # Another broker's clock is behind: its follower lacks what the round before has removed.
    assert tombstones.gone_too_early(gone(3), Round(10, 90, 91)) is None


def test_cl16_what_is_no_tombstone_is_judged_elsewhere() -> None:
    assert Tombstones().gone_too_early(gone(3, value=b"v"), ENDED) is None


def test_a_round_that_was_broken_off_may_have_set_a_time_unseen() -> None:
    tombstones = Tombstones()
    tombstones.forget(1)
    assert tombstones.gone_too_early(gone(3), ENDED) is None
    assert Tombstones().gone_too_early(gone(3), Round(10)) is None


def test_cl16_a_tombstone_goes_with_the_first_round_after_its_time() -> None:
    for began_ms, end, is_kept_too_long in (
        (160, 10, False),
        (161, 10, True),
        (161, 3, False),
        (None, 10, False),
    ):
        tombstones = Tombstones()
        what = looked(tombstones, [batch((3, None), may_go_ms=160)], Round(end, began_ms, 161))
        assert bool(what) == is_kept_too_long, (began_ms, end)
    assert not looked(Tombstones(), [batch((3, b"v"), may_go_ms=160)], Round(10, 162, 162))
