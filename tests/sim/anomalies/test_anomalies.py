"""Each anomaly has a history that must show it, alone, and one beside it that must not."""

from __future__ import annotations

import pytest

from sim.anomalies.operations import Polled, Sent
from sim.hosts.history import Outcome
from tests.sim.anomalies.histories import Did, K, all_found, assigns, names, polls, seeks, sends, stored

FAIL, INFO, OK, OPEN = Outcome.FAIL, Outcome.INFO, Outcome.OK, Outcome.OPEN


def test_sound_history_has_no_anomaly() -> None:
    assert not names(*stored("abc"), polls((0, "a"), (1, "b")), polls((2, "c")), polls((0, "a"), by="d"))
    assert not names(polls((0, "a")), *stored("a"))
    assert not names(sends("a", outcome=OPEN), polls((0, "a")), sends("a", 0))


def test_inconsistent_offsets() -> None:
    unknown = sends("b", outcome=INFO)
    assert not names(*stored("a"), unknown, polls((0, "a")), polls((1, "b"), by="d"))
    found = all_found(
        *stored("a"), unknown, polls((0, "a")), polls((0, "b"), by="d"), polls((0, "b"), by="e")
    )
    assert [(each.name, each.key, each.line) for each in found] == [("inconsistent-offsets", K, 4)]
    assert found[0].evidence == "offset 0 holds 'b' by line 4 (d), and another value by line 1"


def test_inconsistent_offsets_of_answers() -> None:
    assert names(sends("a", 0), sends("b", 0, by="q"), polls((0, "a")), polls((0, "b"), by="d")) == [
        "inconsistent-offsets"
    ]


def test_duplicate() -> None:
    assert not names(*stored("a"), polls((0, "a")), polls((0, "a"), by="d"))
    found = all_found(*stored("a"), polls((0, "a")), polls((4, "a"), by="d"), polls((4, "a"), by="e"))
    assert [each.name for each in found] == ["duplicate"]
    assert found[0].evidence == "'a' is at offset 0 by line 1, and at offset 4 by line 3 (d)"


def test_same_value_in_two_logs_is_no_duplicate() -> None:
    other = (sends("a", 5, key="t-1"), polls((5, "a"), key="t-1"))
    assert not names(*stored("a"), polls((0, "a")), *other)


def test_lost_write() -> None:
    assert not names(*stored("ab"), polls((0, "a"), (1, "b")))
    found = all_found(*stored("ab"), polls((1, "b")))
    assert [(each.name, each.line) for each in found] == [("lost-write", 1)]
    assert found[0].evidence == "'a' of p, answered at offset 0 (line 1), was never read; offset 1 was"
    assert not names(sends("a", outcome=INFO), sends("b", 1), polls((1, "b")))


def test_unseen() -> None:
    assert names(*stored("ab"), polls((0, "a"))) == ["unseen"]
    assert names(sends("a"), *stored("b"), polls((0, "b"))) == ["unseen"]
    assert not names(sends("a"), polls((0, "a")))
    assert not names(sends("a", outcome=INFO), sends("b", outcome=OPEN))


def test_g1a() -> None:
    refused = sends("a", outcome=FAIL)
    assert not names(refused)
    assert names(refused, polls((0, "a")), polls((0, "a"), by="d")) == ["G1a"]
    assert names(polls((0, "a")), refused) == ["G1a"]
    assert not names(sends("a", outcome=INFO), polls((0, "a")))


def test_unsent_read() -> None:
    assert names(polls((0, "a")), polls((0, "a"), by="d")) == ["unsent-read"]
    assert not names(polls((0, "a")), sends("a", outcome=INFO))


def test_precommitted_read() -> None:
    record = Polled(K, ((0, "a"),))
    assert names(("p", OK, (Sent(K, "a", 0), record))) == ["precommitted-read"]
    assert not names(*stored("a"), ("p", OK, (Sent(K, "b", 1), record)), polls((1, "b")))


def test_poll_skip() -> None:
    assert not names(*stored("ab"), polls((0, "a")), polls((1, "b")))
    reads_all = polls((0, "a"), (1, "b"), (2, "c"), by="d")
    found = all_found(*stored("abc"), reads_all, polls((0, "a")), polls((2, "c")))
    assert [(each.name, each.line) for each in found] == [("poll-skip", 6)]
    assert found[0].evidence == "c read offset 0 and then 2 (line 6), and not 1, which has a value by line 2"


def test_poll_skip_of_a_record_that_is_shown_later() -> None:
    reads_all = polls((0, "a"), (1, "b"), (2, "c"), by="d")
    assert names(polls((0, "a")), polls((2, "c")), *stored("abc"), reads_all) == ["poll-skip"]


def test_offsets_without_a_value_are_not_skipped() -> None:
    assert not names(sends("a", 0), sends("c", 2), polls((0, "a")), polls((2, "c")))
    assert not names(sends("a", 0), sends("c", 2), polls((0, "a"), (2, "c")))


def test_client_that_sought_may_go_on_anywhere_in_these_logs() -> None:
    reads_all = polls((0, "a"), (1, "b"), (2, "c"), by="d")
    assert not names(*stored("abc"), reads_all, polls((0, "a")), seeks(K), polls((2, "c")))
    assert names(*stored("abc"), reads_all, polls((0, "a")), seeks("t-1"), polls((2, "c"))) == ["poll-skip"]
    assert not names(*stored("ab"), polls((0, "a"), (1, "b")), seeks(K), polls((0, "a")))


@pytest.mark.parametrize("is_subscription", [False, True])
def test_assigned_client_goes_on_where_it_was_in_the_logs_that_it_keeps_and_anywhere_in_others(
    is_subscription: bool,
) -> None:
    reads_all = polls((0, "a"), (1, "b"), (2, "c"), by="d")

    def found(*assigned: tuple[str, ...]) -> list[str]:
        moves = [assigns(*keys, is_subscription=is_subscription) for keys in assigned]
        anomalies = all_found(*stored("abc"), reads_all, polls((0, "a")), *moves, polls((2, "c")))
        assert all(each.is_allowed == is_subscription for each in anomalies)
        return [each.name for each in anomalies]

    assert found((K, "t-1")) == ["poll-skip"]
    assert found(("t-1",)) == found(()) == []
    # It was taken away, and came back.
    assert found(("t-1",), (K,)) == []


def test_subscribed_client_is_moved_between_polls_and_not_inside_one() -> None:
    reads_all = polls((0, "a"), (1, "b"), (2, "c"), by="d")
    subscribed = (*stored("abc"), reads_all, assigns(K, is_subscription=True))
    found = all_found(*subscribed, polls((0, "a")), polls((2, "c")), polls((2, "c")))
    assert [(each.name, each.is_allowed) for each in found] == [
        ("poll-skip", True),
        ("nonmonotonic-poll", True),
    ]
    assert names(*subscribed, polls((0, "a"), (2, "c"))) == ["int-poll-skip"]


def test_int_poll_skip() -> None:
    reads_all = polls((0, "a"), (1, "b"), (2, "c"), by="d")
    assert not names(*stored("abc"), reads_all, polls((0, "a"), (1, "b")))
    assert names(*stored("abc"), reads_all, polls((0, "a"), (2, "c"))) == ["int-poll-skip"]


def test_nonmonotonic_poll() -> None:
    assert not names(*stored("ab"), polls((0, "a")), polls((1, "b")))
    assert names(*stored("ab"), polls((0, "a"), (1, "b")), polls((1, "b"))) == ["nonmonotonic-poll"]


def test_int_nonmonotonic_poll() -> None:
    assert names(*stored("ab"), polls((0, "a"), (1, "b"), (0, "a"))) == ["int-nonmonotonic-poll"]


def test_nonmonotonic_send() -> None:
    read = polls((0, "a"), (1, "b"))
    assert not names(*stored("ab"), read)
    assert not names(sends("b", 1), sends("a", 0, by="q"), read)
    assert not names(sends("b", 1), sends("a", 0, key="t-1"), polls((0, "a"), key="t-1"), polls((1, "b")))
    assert names(sends("b", 1), sends("a", 0), read) == ["nonmonotonic-send"]


def test_nonmonotonic_send_whose_offsets_only_a_reader_shows() -> None:
    both = (sends("a"), sends("b"))
    assert not names(*both, polls((0, "a"), (1, "b")))
    found = all_found(*both, polls((0, "b"), (1, "a")))
    assert [(each.name, each.line) for each in found] == [("nonmonotonic-send", 2)]
    assert found[0].evidence == "p sent a record that got offset 1, and then one that got 0 (line 2)"


@pytest.mark.parametrize(
    "offsets", [(1, -1, -1), (-1, 0, -1), (-1, -1, 2), (-1, 0, 2), (1, -1, 2), (-1, -1, -1)]
)
@pytest.mark.parametrize("read_first", [0, 1, 2, 3])
def test_each_pair_of_sends_is_judged_once_whoever_shows_their_offsets_and_when(
    offsets: tuple[int, int, int], read_first: int
) -> None:
    """The records are at 1, 0 and 2: only the first two fall."""
    sent = [sends(value, offset) for value, offset in zip("abc", offsets, strict=True)]
    read = polls((0, "b"), (1, "a"), (2, "c"))
    assert names(*sent[:read_first], read, *sent[read_first:]) == ["nonmonotonic-send"]


def test_sends_of_others_in_other_logs_or_to_no_known_offset_are_in_no_order() -> None:
    read = polls((0, "b"), (1, "a"))
    assert not names(sends("a"), sends("b", by="q"), read)
    assert not names(sends("a"), sends("b", key="t-1"), polls((0, "b"), key="t-1"), polls((1, "a")))
    assert names(sends("a"), sends("b"), polls((0, "b"))) == ["unseen"]
    assert not names(sends("a"), sends("b", outcome=INFO), read)


def test_int_nonmonotonic_send_whose_offsets_only_a_reader_shows() -> None:
    both = ("p", OK, (Sent(K, "a"), Sent(K, "b")))
    assert not names(both, polls((0, "a"), (1, "b")))
    assert names(both, polls((0, "b"), (1, "a"))) == ["int-nonmonotonic-send"]


def test_int_nonmonotonic_send() -> None:
    read = polls((0, "a"), (1, "b"))
    assert names(("p", OK, (Sent(K, "b", 1), Sent(K, "a", 0))), read) == ["int-nonmonotonic-send"]
    assert not names(("p", OK, (Sent(K, "a", 0), Sent(K, "b", 1))), read)


def test_int_send_skip_is_allowed() -> None:
    read = polls((0, "a"), (1, "b"), (2, "c"))
    found = all_found(sends("b", 1, by="q"), ("p", OK, (Sent(K, "a", 0), Sent(K, "c", 2))), read)
    assert [(each.name, each.is_allowed) for each in found] == [("int-send-skip", True)]
    assert not all_found(("p", OK, (Sent(K, "a", 0), Sent(K, "b", 1))), polls((0, "a"), (1, "b")))


def test_client_that_loses_records_is_noticed_whatever_lost_them() -> None:
    """Read at two offsets, skipped, or answered and not stored."""
    twice = (*stored("abc"), polls((0, "a"), (1, "b"), (2, "c"), (3, "b")))
    assert names(*twice) == ["duplicate"]
    skipped = (*stored("abc"), polls((0, "a"), (2, "c")))
    assert names(*skipped) == ["int-poll-skip", "lost-write"]
    nowhere = (*stored("abc"), polls((0, "a"), (1, "b")))
    assert names(*nowhere) == ["unseen"]


def with_outcome(outcome: Outcome, *records: tuple[int, str], by: str = "c") -> Did:
    return by, outcome, (Polled(K, records),)


@pytest.mark.parametrize("outcome", [FAIL, OPEN])
def test_poll_that_did_not_happen_has_read_nothing(outcome: Outcome) -> None:
    assert names(*stored("a"), with_outcome(outcome, (0, "a"))) == ["unseen"]
    reads_all = polls((0, "a"), (1, "b"), (2, "c"), by="d")
    nowhere = with_outcome(outcome, (2, "c"), (0, "never sent"))
    assert not names(*stored("abc"), reads_all, polls((0, "a")), nowhere, polls((1, "b")))


def test_poll_of_unknown_outcome_has_read_its_records_and_leaves_its_client_anywhere() -> None:
    unknown = with_outcome(INFO, (0, "a"), (1, "b"))
    assert not names(*stored("ab"), unknown)
    assert not names(*stored("ab"), unknown, polls((0, "a")))
    assert not names(*stored("abcd"), unknown, polls((3, "d")), polls((2, "c"), by="d"))
    assert names(*stored("ab"), polls((1, "b")), unknown) == ["nonmonotonic-poll"]


def test_failed_transaction_has_neither_sent_nor_read() -> None:
    failed = ("c", FAIL, (Sent(K, "b", 1), Polled(K, ((5, "x"),))))
    assert not names(*stored("a"), failed, polls((0, "a")))


def test_subscription_excuses_no_step_before_it() -> None:
    steps = (seeks(K), polls((0, "a")), polls((2, "c")))
    late = (sends("b", 1, by="q"), polls((1, "b"), by="d"))
    sent = (sends("a", 0), sends("c", 2))
    assert names(*sent, *steps, *late) == ["poll-skip"]
    assert names(*sent, *steps, assigns(K, is_subscription=True), *late) == ["poll-skip"]
    assert not names(*sent, assigns(K, is_subscription=True), *steps, *late)


def test_a_number_is_another_value_than_its_text() -> None:
    both = (sends(5, 0), sends("5", 1))
    assert not names(*both, polls((0, 5), (1, "5")))
    found = all_found(*both, polls((1, "5"), (2, 5)))
    assert [each.name for each in found] == ["duplicate"]
    assert found[0].evidence == "5 is at offset 0 by line 1, and at offset 2 by line 3 (c)"


def test_two_polls_in_one_operation_are_inside_it() -> None:
    reads_all = polls((0, "a"), (1, "b"), (2, "c"), by="d")
    skip = ("c", OK, (Polled(K, ((0, "a"),)), Polled(K, ((2, "c"),))))
    back = ("c", OK, (Polled(K, ((1, "b"),)), Polled(K, ((0, "a"),))))
    on = ("c", OK, (Polled(K, ((0, "a"),)), Polled("t-1", ((9, "z"),)), Polled(K, ((1, "b"),))))
    others = (*stored("abc"), sends("z", 9, key="t-1"), polls((9, "z"), key="t-1", by="d"), reads_all)
    assert names(*others, skip) == ["int-poll-skip"]
    assert names(*others, back) == ["int-nonmonotonic-poll"]
    assert not names(*others, on, polls((2, "c")))
    assert names(*others, polls((0, "a")), on, polls((1, "b"))) == ["nonmonotonic-poll", "nonmonotonic-poll"]
