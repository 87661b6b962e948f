"""`replog log verify|stats` over whole directories: in parallel, read-only, and beside other folders."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from replog import log_inspect_commands
from replog.dump_command import dump
from replog.log_commands import log as log_group
from storage.disk.os_filesystem import OsFileSystem
from storage.inspection.dump.dump import DumpOptions, dump_files
from tests.places import GOLDEN

CLEAN = GOLDEN / "kafka-4.1" / "clean"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(log_group, [str(each) for each in arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory of Kafka's with three partitions."""
    for name in ("transactions-0", "idempotent-0", "index-full-rolls-0"):
        shutil.copytree(CLEAN / name, tmp_path / "data" / name)
    shutil.copy(CLEAN / "recovery-point-offset-checkpoint", tmp_path / "data")
    return tmp_path / "data"


def rules(directory: Path) -> list[tuple[str, int | None, str]]:
    result = run("verify", directory, "--json", "--deep")
    assert result.exit_code in (0, 1), result.output
    return [(each["path"], each["position"], each["rule"]) for each in json.loads(result.stdout)["problems"]]


def test_real_kafkas_log_directories_are_sound_with_every_record_decoded() -> None:
    for path in (CLEAN, GOLDEN / "kafka-2.8" / "clean"):
        result = run("verify", path, "--deep")
        assert result.exit_code == 0 and result.stdout.endswith(" partitions, 0 problems\n")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "stats", "recover"])
def test_parallel_processes_return_the_same_results_in_the_same_order(command: str, data: Path) -> None:
    one = run(command, data, "--json", "--jobs", "1")
    two = run(command, data, "--json", "--jobs", "2")
    assert one.exit_code == two.exit_code == 0
    assert json.loads(one.stdout) == json.loads(two.stdout)


def test_leftovers_and_folders_set_aside_are_named(data: Path) -> None:
    partition = data / "idempotent-0"
    log = next(partition.glob("*.log"))
    for name in (f"{log.name}.deleted", f"{log.name}.cleaned", f"{log.stem}.index.swap", "x.tmp", "5.log"):
        (partition / name).write_bytes(b"")
    # The controller's own topic.
    (partition / "00000000000000000001-0000000001.checkpoint.deleted").write_bytes(b"")
    for name in (f"t-0.{'a' * 32}-delete", f"t-1.{'b' * 32}-stray", "no partition", "remote-log-index-cache"):
        (data / name).mkdir()
    assert rules(data) == [
        (f"idempotent-0/{log.stem}.index.swap", None, "LL6"),
        (f"idempotent-0/{log.name}.cleaned", None, "LL6"),
        (f"idempotent-0/{log.name}.deleted", None, "LL6"),
        ("idempotent-0/5.log", None, "1.1"),
        ("idempotent-0/x.tmp", None, "LL6"),
        ("no partition", None, "LL3"),
        (f"t-0.{'a' * 32}-delete", None, "LL4"),
        (f"t-1.{'b' * 32}-stray", None, "LL4"),
    ]


def test_files_of_the_log_directory_are_checked(data: Path) -> None:
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nidempotent-0 5\n")
    (data / "log-start-offset-checkpoint").write_text("0\n1\nidempotent 0 5000\n")
    (data / "replication-offset-checkpoint").write_text("0\n1\ndeleted-topic 0 5000\n")
    (data / "meta.properties").write_text("version=7\n")
    assert rules(data) == [
        ("log-start-offset-checkpoint", None, "FL5"),
        ("cleaner-offset-checkpoint", None, "1.3"),
        ("meta.properties", None, "1.2"),
    ]


def test_transaction_indexes_are_compared_with_the_markers(data: Path) -> None:
    index = data / "transactions-0" / "00000000000000000009.txnindex"
    name, content = f"transactions-0/{index.name}", index.read_bytes()
    index.write_bytes(
        content[:34] + content[34:68].replace(content[36:44], bytes(7) + b"\x63") + content[68:-34]
    )
    assert rules(data) == [(name, 34, "LS10"), (name, None, "LS10")]
    index.write_bytes(content + b"abc")
    assert rules(data) == [(name, len(content), "IX26")]
    index.write_bytes(content[34:68] + content[:34] + content[68:])
    assert (name, 34, "IX27") in rules(data)
    index.write_bytes(b"\x01" + content[1:])
    assert (name, None, "IX30") in rules(data)


def test_snapshots_are_compared_with_the_log(data: Path) -> None:
    partition = data / "idempotent-0"
    newest = max(partition.glob("*.snapshot"))
    newest.rename(partition / f"{9999:020d}.snapshot")
    assert rules(data) == [(f"idempotent-0/{9999:020d}.snapshot", None, "PS16")]
    (partition / f"{9999:020d}.snapshot").rename(partition / f"{1:020d}.snapshot")
    assert {rule for _, _, rule in rules(data)} == {"PS15"}


def test_sequences_that_go_back_are_named(data: Path) -> None:
    log = max((data / "idempotent-0").glob("*.log"), key=lambda path: path.stat().st_size)
    content = log.read_bytes()
    size = 12 + int.from_bytes(content[8:12], "big")
    last = json.loads(run("verify", data / "idempotent-0", "--json").stdout)["partitions"][0][
        "log_end_offset"
    ]
    log.write_bytes(content + last.to_bytes(8, "big") + content[8:size])
    assert "PS4" in {rule for _, _, rule in rules(data)}


def test_reading_changes_no_byte_and_no_time(data: Path) -> None:
    def listing() -> list[tuple[str, int, int, int, int]]:
        found = [(path, path.stat()) for path in (data, *sorted(data.rglob("*")))]
        return [
            (str(path), stat.st_size, stat.st_mtime_ns, stat.st_atime_ns, stat.st_ino) for path, stat in found
        ]

    for path in data.rglob("*"):
        # An access before the last change is noted even on mounts that note few.
        os.utime(path, (1, 2))
    before = listing()
    run("verify", data, "--deep")
    run("stats", data)
    logs = ",".join(map(str, data.glob("*/*.*")))
    assert CliRunner().invoke(dump, ["--print-data-log", "--files", logs]).exit_code in (0, 2)
    assert listing() == before


def test_a_partition_that_cannot_be_read_is_one_line_and_the_others_are_reported(data: Path) -> None:
    name = f"{5000:020d}.log"
    (data / "idempotent-0" / name).mkdir()
    result = run("verify", data)
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert f"idempotent-0: error: {data}/idempotent-0/{name}: Is a directory" in lines
    assert lines[-1] == "3 partitions, 0 problems, 1 could not be read"
    assert json.loads(run("verify", data, "--json").stdout)["sound"] is False
    assert run("stats", data).exit_code == 2


def test_stats_count_what_the_dump_shows() -> None:
    result = run("stats", CLEAN, "--json")
    assert result.exit_code == 0
    for each in json.loads(result.stdout)["partitions"]:
        lines: list[str] = []
        logs = [str(path) for path in sorted((CLEAN / each["directory"]).glob("*.log"))]
        options = DumpOptions(deep_iteration=True)
        dump_files(OsFileSystem(), logs, options, write=lines.append, report=lines.append)
        assert each["batches"] == sum(line.startswith("baseOffset: ") for line in lines)
        assert each["records"] == sum(line.startswith("| offset: ") for line in lines)
        assert each["control_records"] == sum(" endTxnMarker: " in line for line in lines)
        assert each["segments"] == len(logs)


def test_stats_of_old_formats_count_the_messages_in_wrappers() -> None:
    (found,) = json.loads(run("stats", GOLDEN / "kafka-2.8/clean/v1-gzip-0", "--json").stdout)["partitions"]
    assert found["records"] == found["log_end_offset"] > found["batches"]
    assert found["codecs"] == {"gzip": found["batches"]} and found["magics"] == {"1": found["batches"]}


def test_stats_report_the_files_and_maps_that_a_node_needs(data: Path) -> None:
    answer = json.loads(run("stats", data, "--json").stdout)
    names = os.listdir(data / "transactions-0")
    files = sum(name.endswith((".log", ".txnindex")) for name in names)
    found = next(each for each in answer["partitions"] if each["directory"] == "transactions-0")
    maps = sum(name.endswith((".index", ".timeindex")) for name in names)
    # A map holds its file open; the two indexes of the last segment are also written.
    assert (found["open_files"], found["maps"]) == (files + maps + 2, maps)
    assert answer["total"]["maps"] == sum(each["maps"] for each in answer["partitions"])
    assert set(answer["limits"]) == {"ulimit -n", "vm.max_map_count"}


def test_stats_say_that_files_are_opened_again_where_the_limit_is_low(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_inspect_commands, "_limits", lambda _: {"ulimit -n": 9, "vm.max_map_count": None})
    lines = run("stats", data).stdout.splitlines()
    assert "at most 4 kept open, ulimit -n 9: TOO MANY to keep" in lines[-2]
    assert "vm.max_map_count unknown: TOO MANY to keep" in lines[-1]


def test_stats_of_a_torn_log_say_where_they_end(data: Path) -> None:
    log = max((data / "idempotent-0").glob("*.log"), key=lambda path: path.stat().st_size)
    log.write_bytes(log.read_bytes()[:-5])
    result = run("stats", data)
    assert result.exit_code == 1
    assert "idempotent-0: counted up to here only: " in result.stdout
    assert "bytes are no whole batch" in result.stdout


def test_unusable_input_is_one_line(tmp_path: Path) -> None:
    for command in ("verify", "stats"):
        result = run(command, tmp_path)
        assert result.exit_code == 2 and result.stderr == f"error: {tmp_path} holds no partition\n"
        assert run(command, tmp_path / "nowhere").exit_code == 2
        assert run(command, tmp_path, "--jobs", "0").exit_code == 2


@pytest.mark.parametrize("zeros", [10, 4096])
def test_the_zeros_of_a_preallocated_segment_in_use_are_no_damage(data: Path, zeros: int) -> None:
    """Before, `dump` called them damage, and `stats` those that are fewer than a header."""
    partition = data / "idempotent-0"
    log = partition / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + bytes(zeros))

    def statuses() -> list[int]:
        files = CliRunner().invoke(dump, ["--deep-iteration", "--files", str(log)])
        return [files.exit_code, *(run(each, partition).exit_code for each in ("stats", "verify"))]

    assert statuses() == [1, 1, 1]
    lock = OsFileSystem().lock(str(data / ".lock"))
    assert statuses() == [0, 0, 0]
    # A node writes the last segment only.
    (partition / f"{9999:020d}.log").touch()
    assert statuses() == [1, 1, 1]
    lock.release()
