"""A history file is read as Jepsen's operations in JSON; whatever is wrong with it is reported with its line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from replog.cli import main
from sim.anomalies import history_file
from sim.anomalies.history_file import FORMAT, HistoryFile, HistoryFileError
from sim.anomalies.operations import Assigned, Moved, Operation, Polled, Sent, Sought
from sim.anomalies.recording import write_history
from sim.hosts.history import History, Move, Outcome, ReadOperation, SendOperation

SEND = b'{"process":"p","type":"ok","f":"send","value":[["send","t-0",[0,"a"]]]}\n'
POLL = b'{"process":"c","type":"ok","f":"poll","value":[["poll",{"t-0":[[0,"a"]]}]]}\n'


def read(*lines: bytes) -> list[Operation | Moved]:
    return list(HistoryFile("h", io.BytesIO(b"".join(lines))).operations())


def test_operations_keep_their_lines_and_numbers_become_names_of_clients_and_logs() -> None:
    header = json.dumps({"format": FORMAT}).encode() + b"\n"
    unplaced = b'{"process":3,"type":"info","f":"send","value":[["send",0,17]]}\n'
    assert read(header, SEND, POLL, unplaced) == [
        Operation(2, "p", Outcome.OK, (Sent("t-0", "a", 0),)),
        Operation(3, "c", Outcome.OK, (Polled("t-0", ((0, "a"),)),)),
        Operation(4, "3", Outcome.INFO, (Sent("0", 17),)),
    ]


def test_transactions_invocations_and_positions_are_read() -> None:
    transaction = b'{"process":1,"type":"invoke","f":"txn","value":[["send","t-0",[null,"a"]],["poll"]]}\n'
    assign = b'{"process":1,"type":"ok","f":"assign","value":["t-0"]}\n'
    moves = (assign, assign.replace(b"assign", b"subscribe"), assign.replace(b"assign", b"seek"))
    assert read(transaction, *moves, SEND)[:-1] == [
        Operation(1, "1", Outcome.OPEN, (Sent("t-0", "a"),)),
        Assigned(2, "1", ("t-0",)),
        Assigned(3, "1", ("t-0",), is_subscription=True),
        Sought(4, "1", ("t-0",)),
    ]


def test_assign_of_the_older_format_is_a_seek() -> None:
    assign = b'{"process":1,"type":"ok","f":"assign","value":["t-0"]}\n'
    subscribe = assign.replace(b"assign", b"subscribe")
    assert read(b'{"format":"replog-history-1"}\n', assign, subscribe, SEND)[:-1] == [
        Sought(2, "1", ("t-0",)),
        Assigned(3, "1", ("t-0",), is_subscription=True),
    ]
    assert read(b'{"format":"replog-history-2"}\n', assign, SEND)[:-1] == [Assigned(2, "1", ("t-0",))]


def test_assignment_that_did_not_happen_is_passed_over() -> None:
    assign = b'{"process":1,"type":"ok","f":"assign","value":["t-0"]}\n'
    found = [
        read(SEND, assign.replace(b"ok", word), SEND)[1:-1] for word in (b"fail", b"invoke", b"info", b"ok")
    ]
    assert found == [[], [], [Assigned(2, "1", ("t-0",))], [Assigned(2, "1", ("t-0",))]]


def test_operations_about_no_record_are_counted() -> None:
    kill = b'{"process":"nemesis","type":"info","f":"kill","value":["n1"]}\n'
    of_nobody = b'{"process":null,"type":"info","f":"log-line"}\n'
    source = HistoryFile("h", io.BytesIO(kill + of_nobody + SEND))
    assert len(list(source.operations())) == 1
    assert source.ignored == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "the line is cut off"),
        (b"{\n", "the line is no JSON"),
        (b"[]\n", "the line is no JSON object"),
        (
            POLL.replace(b'{"t-0"', b'{"t-0":[],"t-0"'),
            "the line is no JSON that can be read: a member is there twice",
        ),
        (b'{"process":"p","type":"ok","f":"send"}\n', "this send is ok, and has no `value`"),
        (b'{"process":"p","type":"ok","f":"poll","value":null}\n', "this poll is ok, and has no `value`"),
        (SEND.replace(b'"p"', b"[" + b"1," * 99 + b"1]"), "[" + "1, " * 19 + "1,… is neither a text"),
        (b'{"format":"replog-history-2"}\n', "`format` belongs on the first line"),
        (b'{"at":1,"node":"broker-1","kind":"start"}\n', "this is no operation"),
        (SEND.replace(b"ok", b"done"), "type 'done' is none of invoke, ok, fail, info"),
        (SEND.replace(b'"p"', b"{}"), "{} is neither a text nor a whole number"),
        (SEND.replace(b"[0,", b"[-1,"), "-1 is no offset"),
        (SEND.replace(b"[0,", b"[true,"), "[True, 'a'] is not [OFFSET, VALUE]"),
        (POLL.replace(b'"poll",{', b'"pull",{'), "a part is neither"),
        (POLL.replace(b'"a"', b"1.5"), "1.5 is neither a text nor a whole number"),
    ],
)
def test_what_is_no_operation_is_reported_with_its_line(line: bytes, reason: str) -> None:
    with pytest.raises(HistoryFileError, match=r"^h:2: ") as caught:
        read(SEND, line)
    assert caught.value.reason.startswith(reason)


def test_line_without_an_end_is_refused_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_file, "MAX_LINE_BYTES", 100)
    with pytest.raises(HistoryFileError, match=r"^h:2: the line is longer than 100 bytes"):
        read(SEND, b" " * 1_000)


def test_a_poll_may_have_as_many_bytes_as_a_consumer_gets_at_once() -> None:
    value = "x" * 5_000_000
    poll = json.loads(POLL) | {"value": [["poll", {"t-0": [[0, value]]}]]}
    assert read(json.dumps(poll).encode() + b"\n") == [
        Operation(1, "c", Outcome.OK, (Polled("t-0", ((0, value),)),))
    ]


def test_header_of_another_format_is_refused() -> None:
    with pytest.raises(HistoryFileError, match=r"^h:1: this is of format other-1: "):
        read(b'{"format":"other-1"}\n', SEND)


def test_operation_with_a_member_format_is_an_operation() -> None:
    sent = Operation(1, "p", Outcome.OK, (Sent("t-0", "a", 0),))
    send = SEND.replace(b"{", b'{"format":"replog-history-1",', 1)
    assert read(send, send) == [sent, sent._replace(line=2)]


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        json.dumps({"format": FORMAT}).encode() + b"\n",
        b'{"process":"nemesis","type":"info","f":"kill"}\n',
        b'{"process":"c","type":"ok","f":"assign","value":["t-0"]}\n',
        SEND.replace(b"ok", b"invoke"),
    ],
)
def test_history_without_sends_and_polls_is_refused(
    lines: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(lines)
    assert main(["history", "check", str(path)]) == 2
    assert capsys.readouterr() == (
        "",
        f"error: {path}:1: the history has no send and no poll that has ended\n",
    )


def test_history_of_a_run_is_written_in_order_of_time() -> None:
    history = History()
    history.moves.append(Move(consumer="c", partition="t-0", at_us=0))
    for value, outcome, offset, acks in (
        ("a", Outcome.OK, 0, -1),
        ("b", Outcome.INFO, -1, -1),
        ("x", Outcome.OK, -1, 0),
    ):
        history.sends.append(
            SendOperation(
                producer="p", value=value, acks=acks, is_idempotent=True, invoked_us=5, outcome=outcome,
                partition="t-0" if outcome is Outcome.OK else "", offset=offset,
            )
        )  # fmt: skip
    for offset, value, at_us in ((0, "a", 7), (1, "b", 7), (2, "c", 8)):
        history.reads.append(
            ReadOperation(
                consumer="c", partition="t-0", offset=offset, value=value, high_watermark=9, at_us=at_us
            )
        )
    file = io.BytesIO()
    write_history(history, file)
    file.seek(0)
    assert list(HistoryFile("h", file).operations()) == [
        Sought(2, "c", ("t-0",)),
        Operation(3, "p", Outcome.OK, (Sent("t-0", "a", 0),)),
        # Its reader knows where it is.
        Operation(4, "p", Outcome.INFO, (Sent("t-0", "b"),)),
        # acks=0 promises nothing.
        Operation(5, "p", Outcome.INFO, (Sent("t-0", "x"),)),
        Operation(6, "c", Outcome.OK, (Polled("t-0", ((0, "a"), (1, "b"))),)),
        Operation(7, "c", Outcome.OK, (Polled("t-0", ((2, "c"),)),)),
    ]


def test_command_prints_anomalies_by_name_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(SEND + POLL)
    assert main(["history", "check", str(path)]) == 0
    assert capsys.readouterr().out == "operations: 2, records read: 1\nanomalies: none\n"
    path.write_bytes(SEND)
    assert main(["history", "check", str(path)]) == 1
    assert capsys.readouterr().out == (
        "unseen: t-0: 'a' of p, answered at offset 0 (line 1), was never read; the last offset that was is -1\n"
        "operations: 1, records read: 0\nanomalies: 1 unseen\n"
    )
    assert main(["history", "check", "--allow", "unseen", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["allowed: 1 unseen", "anomalies: none"]


def test_command_escapes_what_is_not_printable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.jsonl"
    send = SEND.replace(b"t-0", b"k\\nanomalies: none\\u001b[2K\\udcff")
    path.write_bytes(send.replace(b'"p"', b'"p\\r\\n"').replace(b'"a"', b'"a\\udcff"'))
    assert main(["history", "check", str(path)]) == 1
    assert capsys.readouterr().out == (
        r"unseen: k\nanomalies: none\x1b[2K\udcff: 'a\udcff' of p\r\n, answered at offset 0 (line 1), was never read; "
        "the last offset that was is -1\noperations: 1, records read: 0\nanomalies: 1 unseen\n"
    )
    path.write_bytes(b'{"format":"other\\n\\udcff"}\n')
    assert main(["history", "check", str(path)]) == 2
    assert capsys.readouterr().err.startswith(rf"error: {path}:1: this is of format other\n\udcff: ")


def test_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(POLL)
    assert main(["history", "check", "--json", str(path)]) == 1
    found, summary = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (found["anomaly"], found["key"], found["line"]) == ("unsent-read", "t-0", 1)
    assert summary["anomalies"] == {"unsent-read": 1}


def test_command_refuses_what_is_no_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "h.jsonl"
    path.write_bytes(SEND + b"{\n")
    assert main(["history", "check", str(path)]) == 2
    assert capsys.readouterr().err == f"error: {path}:2: the line is no JSON\n"
    assert main(["history", "check", str(tmp_path / "missing")]) == 2
