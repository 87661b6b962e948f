"""What is seen of nodes from outside: their log lines, and the growing copy of a log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cluster.core.effects import Observe
from cluster.shell.runtime import log_observation
from replog.real.mirror import GrowingLog, GrowingText, copier, new_disk
from replog.real.watch import parse_observation
from storage.batch import build_batch
from storage.batch.record import Record
from storage.disk.filesystem import read_file

NODE_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


@pytest.mark.parametrize(
    "observe",
    [
        Observe(
            kind="controller.leader_elected",
            fields=(
                ("topic_partition", "t-0"),
                ("leader", 2),
                ("leader_epoch", 1),
                ("isr", "2,3"),
                ("clean", 1),
            ),
        ),
        Observe(
            kind="replica.became_follower",
            fields=(("topic_partition", "t-0"), ("leader", -1)),
            metadata_offset=7,
        ),
        Observe(
            kind="log_directory.offline",
            fields=(("directory", "/d/a b"), ("reason", "No space left on device")),
        ),
    ],
)
def test_a_line_that_a_node_logs_is_read_back_as_the_observation(
    observe: Observe, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        log_observation(observe)
    line = logging.Formatter(NODE_FORMAT).format(caplog.records[-1])
    parsed = parse_observation(line)
    assert parsed is not None
    kind, fields = parsed
    offset = {"metadata_offset": observe.metadata_offset} if observe.metadata_offset >= 0 else {}
    assert (kind, fields) == (observe.kind, {**dict(observe.fields), **offset})


@pytest.mark.parametrize(
    "line", ["", "Traceback:", "2026-01-01 00:00:00,000 WARNING cluster.shell.transport UNAVAILABLE: x=1"]
)
def test_any_other_line_is_no_observation(line: str) -> None:
    assert parse_observation(line) is None


def test_a_line_counts_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "node.txt"
    text = GrowingText(path)
    assert list(text.read_on()) == []
    path.write_text("one\ntw")
    assert list(text.read_on()) == ["one"]
    path.write_text("one\ntwo\n")
    assert list(text.read_on()) == ["two"]
    assert list(text.read_on()) == []


def test_the_copy_of_a_log_grows_with_it_and_is_durable(tmp_path: Path) -> None:
    disk = new_disk()
    log = GrowingLog(tmp_path / "p", disk, "c/p")
    assert not log.read_on()
    (tmp_path / "p").mkdir()
    first, second, third = (build_batch([Record(at, 1, None, b"v")], base_offset=at) for at in range(3))
    (tmp_path / "p" / "00.log").write_bytes(first)
    assert log.read_on()
    (tmp_path / "p" / "00.log").write_bytes(first + second)
    (tmp_path / "p" / "02.log").write_bytes(third)
    assert log.read_on()
    assert not log.read_on()
    assert disk.durable_bytes("c/p/00.log") == first + second
    assert read_file(copier(disk), "c/p/02.log") == third


@pytest.mark.parametrize("torn_bytes", [5, 11, 12, 40])
def test_a_batch_is_copied_once_it_is_whole_and_a_torn_one_may_be_cut(
    tmp_path: Path, torn_bytes: int
) -> None:
    disk = new_disk()
    (tmp_path / "p").mkdir()
    path = tmp_path / "p" / "00.log"
    log = GrowingLog(tmp_path / "p", disk, "c/p")
    first, torn, instead = (build_batch([Record(0, 1, None, value)]) for value in (b"v", b"torn", b"instead"))
    path.write_bytes(first + torn[:torn_bytes])
    assert log.read_on()
    assert disk.durable_bytes("c/p/00.log") == first
    path.write_bytes(first + instead)
    assert log.read_on()
    assert disk.durable_bytes("c/p/00.log") == first + instead
