"""The real cluster of `replog.testing`: processes that serve, die, come back, and end with the test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from replog import Consumer, OffsetReset, Producer
from replog.testing import ClusterNotReady, RealCluster, RealClusters
from replog.testing.plugin import real_cluster  # noqa: F401


def test_a_real_cluster_serves_and_a_killed_node_comes_back(request: pytest.FixtureRequest) -> None:
    make: RealClusters = request.getfixturevalue("real_cluster")
    cluster = make("--config", "default.replication.factor=2", nodes=2)
    cluster.command("topics", "create", "t", "--bootstrap-server", cluster.bootstrap)
    with Producer(cluster.bootstrap) as producer:
        producer.send("t", b"a").result(30)
        killed = cluster.pid(2)
        cluster.kill(2)
        producer.send("t", b"b").result(30)
    cluster.restart(2)
    assert cluster.pid(2) != killed
    with Consumer(cluster.bootstrap) as consumer:
        consumer.subscribe(["t"], OffsetReset.EARLIEST)
        values: list[bytes | None] = []
        # A poll waits for records; these are there, so a few polls are enough.
        for _ in range(20):
            values += [record.value for _, record in consumer.poll()]
            if len(values) >= 2:
                break
    assert values == [b"a", b"b"]
    pid = cluster.pid(1)
    cluster.pause(1)
    cluster.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_a_node_with_log_directories_is_found_killed_and_started_again(tmp_path: Path) -> None:
    """Its process id is in another file, and one of an earlier run without them may be left."""
    directories = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    with RealCluster(tmp_path / "data", "--log-dirs", directories, nodes=1) as cluster:
        left = tmp_path / "data" / "node-1" / "pid"
        left.parent.mkdir(exist_ok=True)
        left.write_text("1")
        killed = cluster.pid(1)
        assert cluster.pid("controller") not in (1, killed)
        cluster.pause(1)
        cluster.kill(1)
        # It returns once `up` knows of the death.
        cluster.command("nodes", "kill", "1", "--data", str(cluster.data))
        cluster.restart(1)
        assert cluster.pid(1) not in (1, killed)


def test_a_cluster_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotReady, match=r"no\.such\.setting"):
        RealCluster(tmp_path, "--config", "no.such.setting=1").start()


def test_a_time_limit_that_ends_the_wait_for_a_cluster_ends_its_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    def interrupted(_: object) -> None:
        assert cluster._process is not None
        begun.append(cluster._process)
        raise TimeoutError("the test may take no longer")

    cluster = RealCluster(tmp_path, nodes=1)
    monkeypatch.setattr("replog.testing.real_cluster.ready_of", interrupted)
    with pytest.raises(TimeoutError), cluster:
        pass
    assert begun[0].returncode is not None
