"""A trace becomes columns, tracks and a story."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from sim.bundled import bundled_scenarios
from sim.run import Verdict, run_scenario
from sim.view.columns import NOTHING, Flag
from sim.view.recording import Recording, Window, read_recording
from sim.view.trace_file import TraceFileError
from tests.sim.view.traces import appends, event, leads, request, write_trace


def recorded(tmp_path: Path, *lines: str, window: Window | None = None) -> Recording:
    recording = read_recording(write_trace(tmp_path / "trace", lines), window)
    recording.columns.finish()
    return recording


def test_a_message_is_caused_by_the_last_event_of_its_sender_up_to_its_sending(tmp_path: Path) -> None:
    recording = recorded(
        tmp_path,
        event(10, "broker-2", "timer", key="a"),
        event(20, "broker-2", "timer", key="b"),
        request(25, "broker-1", "broker-2", 20),
        event(30, "broker-2", "timer", key="c"),
        request(40, "broker-1", "broker-2", 29),
    )
    assert list(recording.columns.cause) == [NOTHING, NOTHING, 1, NOTHING, 1]


def test_a_broken_connection_was_sent_by_nobody(tmp_path: Path) -> None:
    body = {"is": "TransportError", "reason": "connection reset"}
    line = event(9, "broker-1", "response", call=1, from_="broker-2", sent=-1, body=body)
    recording = recorded(tmp_path, event(1, "broker-2", "start", life=1), line)
    assert recording.columns.cause[1] == NOTHING
    assert recording.columns.flags[1] == Flag.FAILED


def test_a_second_copy_of_a_request_is_marked(tmp_path: Path) -> None:
    recording = recorded(
        tmp_path,
        request(20, "broker-1", "broker-2", 10, fetch_offset=5),
        request(22, "broker-1", "broker-2", 10, fetch_offset=6),
        request(25, "broker-1", "broker-2", 10, fetch_offset=5),
    )
    assert list(recording.columns.flags) == [0, 0, Flag.DUPLICATE]


def test_a_lost_message_has_the_names_of_both_nodes_and_the_event_that_sent_it(tmp_path: Path) -> None:
    recording = recorded(
        tmp_path,
        event(1, "producer-1", "send", ticket=1),
        event(2, "network", "lost", from_=2001, to=1000, messages=1, why="lost"),
        event(3, "network", "lost", from_=1, to=2002, messages=1, why="cut"),
        event(3, "broker-1", "timer", key="a"),
        event(4, "consumer-1", "timer", key="a"),
    )
    columns = recording.columns
    names = columns.nodes.all()
    ends = [(names[columns.source[row]], names[columns.node[row]]) for row in (1, 2)]
    assert ends == [("producer-1", "controller"), ("broker-1", "consumer-1")]
    assert list(columns.cause) == [NOTHING, 0, NOTHING, NOTHING, NOTHING]
    assert columns.flags[1] == Flag.LOST


def test_clients_are_named_in_the_order_in_which_a_run_numbers_them(tmp_path: Path) -> None:
    names = ("producer-2", "consumer-1", "admin-1", "seeker-2", "admin", "broker-1")
    lines = [event(n, name, "timer", key="a") for n, name in enumerate(names)]
    # The highest number of a kind counts, not how many of it have had an event.
    lines += [event(9, "network", "lost", from_=2000 + n, to=1, messages=1, why="lost") for n in range(9)]
    columns = recorded(tmp_path, *lines).columns
    senders = [columns.nodes.all()[number] for number in columns.source[len(names) :]]
    assert senders == [
        "admin", "producer-1", "producer-2", "consumer-1", "seeker-1", "seeker-2", "admin-1", "client 2007",
        "client 2008",
    ]  # fmt: skip


def test_what_is_lost_with_its_connection_was_sent_at_no_known_time(tmp_path: Path) -> None:
    recording = recorded(
        tmp_path,
        event(1, "broker-1", "timer", key="a"),
        event(2, "broker-2", "timer", key="a"),
        event(9, "network", "lost", from_=1, to=2, messages=3, why="connection broken"),
    )
    columns = recording.columns
    assert [columns.nodes.all()[each[2]] for each in (columns.source, columns.node)] == [
        "broker-1",
        "broker-2",
    ]
    assert columns.cause[2] == NOTHING


def test_violations_faults_and_what_ends_them_are_told_apart(tmp_path: Path) -> None:
    told = [
        "VIOLATED log-matching: t-0: x", "cut a -> b", "heal a -> b", "start broker-1 again", "broker-1 goes on",
        "power loss (keep torn) at broker-1",
    ]  # fmt: skip
    lines = [event(n, "world", "tell", what=what) for n, what in enumerate(told)]
    flags = [Flag(each) & (Flag.VIOLATION | Flag.FAULT) for each in recorded(tmp_path, *lines).columns.flags]
    assert flags == [Flag.VIOLATION, Flag.FAULT, Flag(0), Flag(0), Flag(0), Flag.FAULT]


def test_the_text_of_the_page_is_the_trace_without_its_header(tmp_path: Path) -> None:
    lines = [event(1, "broker-1", "start", life=1), event(2, "broker-1", "end", how="crash")]
    recording = read_recording(write_trace(tmp_path / "trace", lines))
    assert zlib.decompress(recording.columns.finish()).decode() == "".join(f"{line}\n" for line in lines)


def test_a_window_has_its_events_only_and_the_state_that_those_before_it_left(tmp_path: Path) -> None:
    lines = [leads(1, 1, 0), appends(2, 1, 0, 0, 9), appends(5, 1, 0, 10, 19), appends(9, 1, 0, 20, 29)]
    recording = recorded(tmp_path, *lines, window=Window(from_us=5, until_us=9))
    assert (len(recording.columns), recording.skipped) == (1, 2)
    log = recording.tracks.partitions["t-0"].logs.replica("broker-1")
    assert log.end == 20
    assert log.changes[::4] == [0, 0]


def test_a_node_without_an_event_in_the_window_has_its_name_and_its_lost_messages(tmp_path: Path) -> None:
    lines = [
        event(1, "producer-1", "send", ticket=1),
        event(2, "consumer-1", "timer", key="a"),
        event(6, "network", "lost", from_=1, to=2002, messages=1, why="lost"),
    ]
    columns = recorded(tmp_path, *lines, window=Window(from_us=5)).columns
    names = columns.nodes.all()
    assert {"producer-1", "consumer-1"} <= set(names)
    assert names[columns.node[0]] == "consumer-1"


def test_a_window_has_no_span_of_a_fault_that_was_over_before_it(tmp_path: Path) -> None:
    told = ["cut a -> b", "heal a -> b", "cut b -> a", "slow a -> b by 5 ms"]
    lines = [event(n, "world", "tell", what=what) for n, what in enumerate(told)]
    recording = recorded(tmp_path, *lines, window=Window(from_us=3))
    spans = recording.spans.finish(len(recording.columns))
    assert [(span.text, span.first, span.end) for span in spans] == [(told[2], 0, 1), (told[3], 0, 1)]


@pytest.mark.parametrize(
    ("from_us", "until_us", "is_part"), [(0, None, False), (0, 9, False), (2, None, True), (0, 2, True)]
)
def test_a_page_of_a_part_of_a_run_says_so(
    tmp_path: Path, from_us: int, until_us: int | None, is_part: bool
) -> None:
    lines = [
        event(1, "broker-1", "timer", key="a"),
        event(2, "world", "tell", what="VIOLATED log-matching: x"),
    ]
    recording = recorded(tmp_path, *lines, window=Window(from_us=from_us, until_us=until_us))
    assert recording.is_part is is_part


def test_the_controllers_view_of_a_partition_is_kept_event_by_event(tmp_path: Path) -> None:
    recording = recorded(
        tmp_path,
        event(
            1, "controller", "controller.leader_elected", topic_partition="t-0", leader=3, leader_epoch=0, isr="3,1,2",
            clean=1,
        ),
        event(2, "controller", "controller.isr_changed", topic_partition="t-0", isr="3,1", partition_epoch=1),
        event(3, "controller", "controller.leader_lost", topic_partition="t-0", leader_epoch=1, isr="3"),
    )  # fmt: skip
    assert recording.tracks.partitions["t-0"].states == [
        (0, 3, 0, [1, 2, 3]),
        (1, 3, 0, [1, 3]),
        (2, -1, 1, [3]),
    ]


def test_a_replica_is_down_with_its_broker(tmp_path: Path) -> None:
    recording = recorded(tmp_path, leads(1, 1, 4), event(2, "broker-1", "end", how="crash"))
    roles = recording.tracks.partitions["t-0"].roles["broker-1"]
    assert roles == [(0, "leader", 4), (1, "down", 4)]


def test_an_event_of_another_form_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match="leader_epoch") as raised:
        recorded(tmp_path, event(1, "broker-1", "replica.became_leader", topic_partition="t-0"))
    assert raised.value.line == 2


@pytest.mark.slow
@pytest.mark.parametrize("scenario", sorted(bundled_scenarios()))
def test_the_logs_of_a_run_that_held_end_alike(tmp_path: Path, scenario: str) -> None:
    trace = tmp_path / "run.jsonl"
    with trace.open("wb") as file:
        assert run_scenario(scenario, 7, trace_file=file).verdict is Verdict.HELD
    for name, tracks in read_recording(trace).tracks.partitions.items():
        logs = [
            log for broker, log in tracks.logs.replicas.items() if tracks.roles[broker][-1][1] != "removed"
        ]
        assert len({log.end for log in logs}) == 1, name
        assert (
            len({tuple(run for run in log.runs if run.epoch >= 0) for log in logs if log.start == 0}) <= 1
        ), name
