"""The controller does with a topic what it was asked for, or nothing for a reason, and says which of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.core.controller.config import ControllerConfig
from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Request
from cluster.core.messages import (
    AlterTopicConfigsRequest,
    AlterTopicConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicRequest,
    CreateTopicResponse,
    DeleteTopicRequest,
    DeleteTopicResponse,
    Header,
    TopicPartition,
)
from cluster.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from cluster.core.metadata.shared_map import SharedMap
from sim.checkers.base import Jury
from sim.checkers.ghost import Ghost
from sim.checkers.topic_decisions import TopicDecisions
from sim.checkers.topic_requests import TopicRequest

CONFIG = ControllerConfig(num_partitions=2, default_replication_factor=1, max_partitions_per_topic=3)
ID, OTHER_ID = "0a", "0b"


def broker(number: int, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=number, broker_epoch=number, incarnation=f"i{number}", host="", port=0, fenced=fenced,
        in_controlled_shutdown=False,
    )  # fmt: skip


BROKERS = {1: broker(1), 2: broker(2), 3: broker(3, fenced=True)}


def topic(
    *replicas: tuple[int, ...], name: str = "t", topic_id: str = ID, configs: tuple[tuple[str, str], ...] = ()
) -> TopicImage:
    """Returns a new topic with these replicas, of which 3 is fenced."""
    partitions = {}
    for number, each in enumerate(replicas):
        isr = tuple(replica for replica in each if replica != 3)
        partitions[number] = PartitionRegistration(
            topic_partition=TopicPartition(name, number), replicas=each, isr=isr, leader=isr[0],
            leader_epoch=0, partition_epoch=0,
        )  # fmt: skip
    return TopicImage(name=name, topic_id=topic_id, configs=configs, partitions=SharedMap(partitions))


def image(*topics: TopicImage, next_offset: int = 10) -> MetadataImage:
    named = SharedMap({each.name: each for each in topics})
    return MetadataImage(cluster_id="c", brokers=BROKERS, topics=named, next_offset=next_offset)


AGED = (("segment.ms", "700"),)
NEW = CreateTopicRequest(name="t", partitions=2, replication_factor=2, configs=AGED)
PLACED = CreateTopicRequest(name="t", assignment=((2, 3), (1, 2)))
GROW = CreatePartitionsRequest(name="t", count=2)
ALTER = AlterTopicConfigsRequest(name="t", configs=(("segment.ms", ""), ("retention.ms", "900")))
DELETE = DeleteTopicRequest(name="t")
NOTHING, ONE = image(), image(topic((1, 2), configs=AGED))
BYSTANDER = topic((1,), name="u", topic_id=OTHER_ID)
Step = tuple[TopicRequest, MetadataImage, MetadataImage]

GRANTED: dict[str, Step] = {
    "a topic is created": (NEW, NOTHING, image(topic((1, 2), (2, 1), configs=AGED))),
    "a topic of default size": (
        CreateTopicRequest(name="t", partitions=-1, replication_factor=-1), NOTHING, image(topic((1,), (2,))),
    ),
    "a topic with its replicas": (PLACED, NOTHING, image(topic((2, 3), (1, 2)))),
    "a topic grows": (GROW, ONE, image(topic((1, 2), (2, 1), configs=AGED))),
    "properties": (ALTER, ONE, image(topic((1, 2), configs=(("retention.ms", "900"),)))),
    "properties that it has": (AlterTopicConfigsRequest(name="t", configs=AGED), ONE, ONE),
    "a topic is deleted": (DELETE, ONE, NOTHING),
}  # fmt: skip

REFUSED: dict[str, Step] = {
    "the topic exists": (NEW, ONE, ONE),
    "a name that metrics would take for another": (replace(NEW, name="a.b"), image(topic((1,), name="a_b")),
                                                   image(topic((1,), name="a_b"))),
    "no name": (replace(NEW, name="no/name"), NOTHING, NOTHING),
    "more replicas than active brokers": (replace(NEW, replication_factor=3), NOTHING, NOTHING),
    "too many partitions": (replace(NEW, partitions=4), NOTHING, NOTHING),
    "no value": (replace(NEW, configs=(("segment.ms", "soon"),)), NOTHING, NOTHING),
    "a broker twice": (replace(PLACED, assignment=((1, 1),)), NOTHING, NOTHING),
    "no active broker": (replace(PLACED, assignment=((3,),)), NOTHING, NOTHING),
    "no broker": (replace(PLACED, assignment=((4, 1),)), NOTHING, NOTHING),
    "as many partitions as before": (replace(GROW, count=1), ONE, ONE),
    "no topic to grow": (GROW, NOTHING, NOTHING),
    "no topic to alter": (ALTER, NOTHING, NOTHING),
    "no topic to delete": (DELETE, NOTHING, NOTHING),
    "another life of the broker has forwarded it": (
        replace(DELETE, header=Header(cluster_id="c", broker_id=1, broker_epoch=0, incarnation="i0")), ONE, ONE,
    ),
}  # fmt: skip

WRONG: dict[str, Step] = {
    "fewer partitions": (NEW, NOTHING, image(topic((1, 2), configs=AGED))),
    "fewer replicas": (NEW, NOTHING, image(topic((1,), (2,), configs=AGED))),
    "other properties": (NEW, NOTHING, image(topic((1, 2), (2, 1)))),
    "a replica that is fenced": (NEW, NOTHING, image(topic((1, 3), (2, 1), configs=AGED))),
    "other replicas": (PLACED, NOTHING, image(topic((2, 1), (1, 2)))),
    "a growth with fewer replicas": (GROW, ONE, image(topic((1, 2), (2,), configs=AGED))),
    "a growth that moves what was there": (GROW, ONE, image(topic((2, 1), (2, 1), configs=AGED))),
    "a growth by too many": (GROW, ONE, image(topic((1, 2), (2, 1), (1, 2), configs=AGED))),
    "a property that stays": (ALTER, ONE, image(topic((1, 2), configs=(*AGED, ("retention.ms", "900"))))),
    "a property that is lost": (
        AlterTopicConfigsRequest(name="t", configs=(("retention.ms", "900"),)), ONE,
        image(topic((1, 2), configs=(("retention.ms", "900"),))),
    ),
    "a topic that exists is made again": (NEW, ONE, image(topic((1, 2), (2, 1), configs=AGED))),
    "another topic changes": (DELETE, image(topic((1, 2)), BYSTANDER), NOTHING),
    "nothing, for no reason": (NEW, NOTHING, NOTHING),
    "no deletion, for no reason": (DELETE, ONE, ONE),
}  # fmt: skip


def answer(request: TopicRequest, error: ErrorCode = ErrorCode.NONE) -> Reply:
    match request:
        case CreateTopicRequest():
            return Reply(call=1, body=CreateTopicResponse(error=error))
        case DeleteTopicRequest():
            return Reply(call=1, body=DeleteTopicResponse(error=error))
        case AlterTopicConfigsRequest():
            return Reply(call=1, body=AlterTopicConfigsResponse(error=error))
        case CreatePartitionsRequest():
            return Reply(call=1, body=CreatePartitionsResponse(error=error))


class Story:
    def __init__(self) -> None:
        self.jury = Jury(Ghost(), [], now_us=lambda: 0, on_violation=lambda violation: None)
        self.decisions = TopicDecisions(self.jury)

    def step(self, request: TopicRequest, after: MetadataImage, *replies: Reply) -> None:
        self.decisions.on_step([Request(call=1, body=request)], replies, after, CONFIG)

    def begins(self, before: MetadataImage) -> None:
        """The first step of a life shows what there is, and nothing is judged by it."""
        self.decisions.on_died()
        self.step(replace(DELETE, name="nothing"), before)

    def shows(self, step: Step, *replies: Reply) -> bool:
        """Returns whether a rule is broken after this step."""
        request, before, after = step
        self.begins(before)
        self.step(request, replace(after, next_offset=20), *replies)
        return bool(self.jury.violations)


@pytest.mark.parametrize("name", GRANTED)
def test_what_is_granted_is_done_and_said(name: str) -> None:
    step = GRANTED[name]
    assert not Story().shows(step, answer(step[0]))
    assert Story().shows(step, answer(step[0], ErrorCode.INVALID_REQUEST))


@pytest.mark.parametrize("name", REFUSED)
def test_what_something_speaks_against_is_not_done_and_said(name: str) -> None:
    step = REFUSED[name]
    assert not Story().shows(step, answer(step[0], ErrorCode.INVALID_REQUEST))
    assert Story().shows(step, answer(step[0]))


@pytest.mark.parametrize("name", WRONG)
def test_what_was_not_asked_for_is_reported(name: str) -> None:
    assert Story().shows(WRONG[name])


def test_a_controller_that_closes_need_not_grant_anything() -> None:
    assert not Story().shows((DELETE, ONE, ONE), answer(DELETE, ErrorCode.NOT_CONTROLLER))


@pytest.mark.parametrize(
    "life",
    [
        Header(cluster_id="d", broker_id=1, incarnation="i1"),
        Header(cluster_id="c", broker_id=1, incarnation="i0"),
    ],
)
def test_who_is_not_trusted_may_be_refused_also_what_there_is(life: Header) -> None:
    asked = AlterTopicConfigsRequest(name="t", configs=AGED, header=life)
    assert not Story().shows((asked, ONE, ONE), answer(asked, ErrorCode.STALE_BROKER_EPOCH))
    # What is done all the same must be said.
    deletion = replace(DELETE, header=life)
    assert not Story().shows((deletion, ONE, NOTHING), answer(deletion))
    assert Story().shows((deletion, ONE, NOTHING), answer(deletion, ErrorCode.STALE_BROKER_EPOCH))


def test_a_topic_id_is_of_one_topic_unless_its_creation_was_lost() -> None:
    story = Story()
    made = image(topic((1, 2), (2, 1), configs=AGED))
    assert not story.shows((NEW, NOTHING, made))
    assert not story.shows((NEW, NOTHING, made))
    assert story.shows((NEW, replace(NOTHING, next_offset=15), made))


def test_a_topic_of_more_properties_than_a_batch_takes_by_now_may_be_left_as_it_is() -> None:
    padded = image(topic((1, 2), configs=(("retention.ms", "1" + 3_000 * " "),)))
    assert not Story().shows((ALTER, padded, padded), answer(ALTER, ErrorCode.MESSAGE_TOO_LARGE))
    assert Story().shows((ALTER, ONE, ONE), answer(ALTER, ErrorCode.MESSAGE_TOO_LARGE))
