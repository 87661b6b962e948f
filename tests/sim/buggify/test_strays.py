"""Strays: requests that no node or client of the cluster has sent, each of which a correct node refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Request
from cluster.core.messages import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    FetchMetadataRequest,
    FetchPartition,
    FetchRequest,
    Header,
    IsrMember,
    ListOffsetsRequest,
    RegisterBrokerRequest,
    RequestBody,
)
from sim.buggify.buggify import Buggify
from sim.buggify.host import HostPoints
from sim.buggify.strays import STRAYS, Stray, strays
from sim.world.network import Transport
from storage.draws import Draws
from tests.cluster.controller.setup import T0, ControllerBench
from tests.sim.hosts.fake_cores import Echo, Site, ask

SECOND = 1_000_000


def on(*points: str, seed: int = 1) -> Buggify:
    return Buggify(Draws(seed), points, percent=100)


def requests(header: Header, topic_id: str) -> list[RequestBody]:
    """Return one request of each kind that strays are made of, all of which a leader or controller may grant."""
    number, epoch = header.broker_id, header.broker_epoch
    members = tuple(IsrMember(broker_id=each, broker_epoch=epoch) for each in (1, 2))
    fetched = FetchPartition(topic_partition=T0, topic_id=topic_id, fetch_offset=0, current_leader_epoch=3)
    return [
        RegisterBrokerRequest(header=header, broker_id=number, incarnation="first", host="h", port=9001),
        BrokerHeartbeatRequest(header=header, broker_id=number, broker_epoch=epoch, metadata_offset=0),
        FetchMetadataRequest(header=header, broker_id=number, offset=0, max_wait_ms=0),
        AlterPartitionRequest(
            header=header, broker_id=number, broker_epoch=epoch, topic_partition=T0, topic_id=topic_id,
            leader_epoch=0, partition_epoch=0, new_isr=members,
        ),
        FetchRequest(header=header, replica_id=number, broker_epoch=epoch, partitions=(fetched,)),
        ListOffsetsRequest(topic_partition=T0, topic_id=topic_id, timestamp=-1, current_leader_epoch=3),
    ]  # fmt: skip


def made(header: Header, topic_id: str) -> Iterator[tuple[RequestBody, Stray]]:
    """Yield strays of all kinds, each with the request that it was made of."""
    for seed in range(12):
        for body in requests(header, topic_id):
            for stray in strays(on(*STRAYS, seed=seed), "node-1", body):
                yield body, stray


def test_each_point_makes_another_request_of_some_request() -> None:
    header = Header(cluster_id="c", broker_id=1, broker_epoch=7, incarnation="a")
    for point in STRAYS:
        found = [
            (body, stray.body) for body in requests(header, "ab") for stray in strays(on(point), "n", body)
        ]
        assert found and all(stray != body for body, stray in found), point


def test_g4_a_controller_refuses_each_stray_and_appends_nothing_but_what_was_too_large() -> None:
    bench = ControllerBench().unfenced(1, 2)
    bench.create("t", partitions=1, replication_factor=2)
    header, topic_id = bench.header_of(1, bench.controller.image.broker_epoch(1)), bench.topic_id("t")
    whys = set()
    for number, (body, stray) in enumerate(made(header, topic_id), 1_000):
        if isinstance(body, FetchRequest | ListOffsetsRequest) or not stray.why:
            continue
        end = bench.controller.log.end_offset
        effects = bench.run_jobs(bench.controller.step(0, Request(call=number, body=stray.body)))
        (answer,) = [each.body for each in effects if isinstance(each, Reply) and each.call == number]
        assert getattr(answer, "error", ErrorCode.NONE) is not ErrorCode.NONE, stray
        assert bench.controller.log.end_offset == end, stray
        whys.add(stray.why)
    assert len(whys) >= 12, whys


@pytest.mark.parametrize("transport", Transport)
def test_a_stray_reaches_the_core_and_nobody_gets_its_answer(transport: Transport) -> None:
    asker, echo = Echo([ask(2, 5, 5)]), Echo()
    site = Site(lambda number: asker if number == 1 else echo, transport=transport)
    site.nodes[2].points = HostPoints(on("stray-of-another-epoch", "stray-about-another-topic"), "node-2")
    site.start()
    site.world.run_to(SECOND)
    assert asker.answers() == [5] and asker.errors() == []
    assert echo.asked() == [5, 5, 5]


def test_a_point_that_is_off_makes_no_stray() -> None:
    header = Header(cluster_id="c", broker_id=1, broker_epoch=7, incarnation="a")
    assert [list(strays(on(), "n", body)) for body in requests(header, "ab")] == [[]] * 6
