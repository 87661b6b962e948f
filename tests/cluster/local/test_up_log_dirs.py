"""`replog up --log-dirs`: several log directories for each broker, as real processes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.local.layout import ClusterSpec, UnusableInput
from cluster.local.properties import take_paths
from tests.cluster.local.real_cluster import FAST_SESSIONS, Up, replog, running

FAST_CHECKPOINTS = ("--config", "replica.high.watermark.checkpoint.interval.ms=200")


def spec(data: Path, *log_dirs: Path) -> ClusterSpec:
    return ClusterSpec(data=data, nodes=2, port=19092, controller_port=20092, log_dirs=log_dirs)


# The command line


@pytest.mark.parametrize(
    ("properties", "option"), [((), "/a, b"), ((("log.dirs", "/a,b"), ("log.segment.bytes", "9")), None)]
)
def test_log_dirs_are_an_option_or_kafkas_property(
    properties: tuple[tuple[str, str], ...], option: str | None
) -> None:
    rest, paths, metadata = take_paths(properties, option)
    assert paths == (Path("/a"), Path.cwd() / "b") and metadata is None
    assert rest == tuple(pair for pair in properties if pair[0] != "log.dirs")


def test_the_metadata_log_may_be_elsewhere() -> None:
    rest, paths, metadata = take_paths((("metadata.log.dir", "/m"),), None)
    assert (rest, paths, metadata) == ((), (), Path("/m"))
    given = ClusterSpec(data=Path("/d"), nodes=1, port=1, controller_port=9, metadata_log_dir=metadata)
    assert given.controller.log_directories == (Path("/m/controller"),)
    assert given.controller.pid_path == Path("/d/controller.pid")


@pytest.mark.parametrize(
    ("properties", "option", "reason"),
    [((("log.dirs", "/a"),), "/a", "given more than once"), ((), "/a,,/b", "got an empty name")],
)
def test_what_cannot_be_meant_is_refused(
    properties: tuple[tuple[str, str], ...], option: str | None, reason: str
) -> None:
    with pytest.raises(UnusableInput, match=reason):
        take_paths(properties, option)


def test_a_directory_given_twice_is_refused() -> None:
    with pytest.raises(UnusableInput, match="given more than once: /a"):
        spec(Path("/d"), Path("/a"), Path("/b"), Path("/a"))


def test_each_broker_has_a_folder_in_each_log_directory_and_its_pid_in_none() -> None:
    node = spec(Path("/d"), Path("/a"), Path("/b")).broker(2)
    assert node.log_directories == (Path("/a/node-2"), Path("/b/node-2"))
    assert node.pid_path == Path("/d/node-2.pid")
    node = spec(Path("/d")).broker(2)
    assert node.log_directories == (Path("/d/node-2"),)
    assert node.pid_path == Path("/d/node-2/pid")


def no_line(line: str) -> None:
    pytest.fail(line)


def test_a_start_without_any_directory_of_last_time_is_refused(tmp_path: Path) -> None:
    """Every log would seem deleted, and empty ones would take their place."""
    one, two = tmp_path / "one", tmp_path / "two"
    # The first start knows no directory yet.
    spec(tmp_path).check_knows_logs(no_line)
    spec(tmp_path).save()
    with pytest.raises(
        UnusableInput, match=f"last run with --log-dirs {tmp_path}: --log-dirs must keep at least one"
    ):
        spec(tmp_path, one, two).check_knows_logs(no_line)
    spec(tmp_path, tmp_path, one).check_knows_logs(no_line)
    spec(tmp_path, tmp_path, one).save()
    spec(tmp_path, one, two).check_knows_logs(no_line)
    spec(tmp_path, one, two).save()
    with pytest.raises(UnusableInput, match=f"{one},{two}: --log-dirs must keep at least one"):
        spec(tmp_path).check_knows_logs(no_line)


# Processes


def listed(up: Up, node: int) -> dict[str, object]:
    done = replog("nodes", "list", "--data", str(up.data), "--json")
    nodes: list[dict[str, object]] = json.loads(done.stdout)["nodes"]
    return next(each for each in nodes if each["node"] == node)


def consumed(up: Up) -> list[str]:
    done = up.run("consume", "t", "--from-beginning", "--until-end", "--timeout-ms", "20000")
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.decode().split())


def produce(up: Up, *values: str) -> None:
    done = up.run("produce", "t", "--acks", "all", given="".join(f"{value}\n" for value in values).encode())
    assert done.returncode == 0, done.stderr


def leaders(up: Up) -> list[object]:
    return [each["leader"] for each in up.describe("t")]


@pytest.mark.slow
def test_one_directory_fails_while_it_runs_another_at_the_start_and_all_is_there_again(
    tmp_path: Path,
) -> None:
    one, two, away = (tmp_path / name for name in ("one", "two", "away"))
    options = ("--log-dirs", f"{one},{two}", *FAST_SESSIONS, *FAST_CHECKPOINTS)
    values = [f"v{number}" for number in range(40)]
    with running(tmp_path / "data", 2, *options) as up:
        assert (
            up.run("topics", "create", "t", "--partitions", "4", "--replication-factor", "2").returncode == 0
        )
        for directory in (one, two):
            assert len(list((directory / "node-1").glob("t-*"))) == 2
        for value in values[:10]:
            produce(up, value)

        # The next checkpoint finds no directory to write in.
        (two / "node-1").rename(away)
        up.assert_soon(lambda: bool(listed(up, 1)["offline_directories"]), "node 1 notices")
        assert listed(up, 1)["offline_directories"] == [str(two / "node-1")]
        assert listed(up, 1)["state"] == "ready"
        up.assert_soon(lambda: leaders(up).count(2) >= 2, "its leaders move")
        offline = {each.name for each in away.glob("t-*")}
        for each in up.describe("t"):
            is_offline = f"t-{each['partition']}" in offline
            assert (1 in each["isr"]) != is_offline, each  # type: ignore[operator]  # of JSON
            assert not is_offline or each["leader"] == 2
        for value in values[10:20]:
            produce(up, value)
        assert consumed(up) == sorted(values[:20])

        replog("nodes", "stop", "1", "--data", str(up.data))
        (two / "node-1").write_text("a file in its place")
        replog("nodes", "start", "1", "--data", str(up.data))
        assert listed(up, 1)["state"] == "ready"
        assert listed(up, 1)["offline_directories"] == [str(two / "node-1")]
        for value in values[20:30]:
            produce(up, value)

        replog("nodes", "stop", "1", "--data", str(up.data))
        (two / "node-1").unlink()
        away.rename(two / "node-1")
        replog("nodes", "start", "1", "--data", str(up.data))
        assert listed(up, 1)["offline_directories"] == []
        up.assert_soon(
            lambda: all(len(each["isr"]) == 2 for each in up.describe("t")),  # type: ignore[arg-type]
            "all replicas are in sync again",
        )
        replog("nodes", "stop", "2", "--data", str(up.data))
        up.assert_soon(lambda: leaders(up) == [1, 1, 1, 1], "node 1 leads all")
        produce(up, *values[30:])
        assert consumed(up) == sorted(values)
        assert up.stop() == 0
        lines = [line for line in up.errors().splitlines() if "is offline" in line]
        assert len(lines) == 2 and all(f"log directory {two}/node-1 is offline: " in line for line in lines)


@pytest.mark.slow
def test_a_node_without_any_directory_that_works_does_not_start(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("no directory")
    up = Up(tmp_path / "data", 1, "--log-dirs", f"{tmp_path}/one,{tmp_path}/two")
    try:
        assert up.process.wait(60) == 2
        lines = [line for line in up.errors().splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 and "node 1: no log directory can be used: " in lines[0]
        assert f"{tmp_path}/one/node-1: " in lines[0] and f"{tmp_path}/two/node-1: " in lines[0]
    finally:
        for stream in (up.process.stdout, up.process.stderr):
            assert stream is not None
            stream.close()
