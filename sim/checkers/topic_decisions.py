"""What the controller makes of requests about topics: each is done as it was asked, or refused for a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from cluster.core.controller.config import ControllerConfig
from cluster.core.effects import Reply
from cluster.core.errors import ErrorCode
from cluster.core.events import Event, Request
from cluster.core.messages import Header
from cluster.core.metadata.image import MetadataImage, TopicImage
from sim.checkers.base import Jury
from sim.checkers.forwarding import FORWARDED
from sim.checkers.topic_requests import Assignment, Configs, TopicRequest, is_done, outline, reason_against

# Properties of more text than this may not fit into a batch of the metadata log.
_MOST_TEXT = 2_000


@final
class TopicDecisions:
    """Judges each step of the controller by the topics before and after it.

    A topic has the partitions, replicas and properties that were asked for, on brokers that could take them, and no
    other topic has changed. What nothing speaks against is done, and the answer says whether it was. A topic id is of
    one topic.
    """

    name = "topic-decisions"

    def __init__(self, jury: Jury) -> None:
        self._jury = jury
        # The metadata after the last step; None in a life that has had no step.
        self._before: MetadataImage | None = None
        # Whether the request was granted, by call, until it is answered.
        self._granted: dict[int, bool] = {}
        # The topic ids of all lives, each with the name of its topic and the end of the metadata before its creation.
        self._ids: dict[str, tuple[str, int]] = {}

    def on_died(self) -> None:
        """Receives the end of the controller's process."""
        self._before = None
        self._granted.clear()

    def on_step(
        self,
        events: Sequence[Event],
        effects: Sequence[object],
        image: MetadataImage,
        config: ControllerConfig,
    ) -> None:
        """Receives a step of the controller; `image` has all that it has decided, durable or not."""
        before, self._before = self._before, image
        event = events[0]
        if before is None or image.next_offset < before.next_offset or len(events) > 1:
            # A disk that fails ends the controller, and drops what was not durable.
            self._granted.clear()
        elif type(event) is Request and isinstance(event.body, FORWARDED):
            self._judge_others(event.body.name, before, image)
            may_be_refused = _may_be_refused(event.call, event.body, effects, before)
            self._judge(event.call, event.body, before, image, config, may_be_refused=may_be_refused)
        elif image.topics is not before.topics:
            self._judge_others("", before, image)
        if self._granted:
            for effect in effects:
                if type(effect) is Reply and effect.call in self._granted:
                    self._judge_answer(self._granted.pop(effect.call), effect.body)

    def _judge(
        self,
        call: int,
        body: TopicRequest,
        before: MetadataImage,
        image: MetadataImage,
        config: ControllerConfig,
        *,
        may_be_refused: bool,
    ) -> None:
        """Judge what was made of the topic, and note whether that is what was asked for, as the answer has to say.

        What `may_be_refused` anyway may be answered so even where the topic is as asked without a change.
        """
        was, now = before.topics.get(body.name), image.topics.get(body.name)
        is_changed = _outline(was) != _outline(now)
        reason = reason_against(body, before, config)
        is_granted = not reason and is_done(body, was, now, before, config)
        if is_changed and not is_granted:
            self._report(body, f"was granted, although {reason}" if reason else f"has made {now}")
        elif not (reason or is_granted or may_be_refused):
            self._report(body, "was refused, although nothing speaks against it")
        if is_changed or not is_granted or not may_be_refused:
            self._granted[call] = is_granted
        if now is not None and was is None:
            self._judge_id(body, now, before.next_offset)

    def _judge_id(self, body: TopicRequest, topic: TopicImage, created_at: int) -> None:
        made = (topic.name, created_at)
        known = self._ids.setdefault(topic.topic_id, made)
        if known != made:
            self._report(
                body, f"has made a topic with the id of {known[0]}, created at metadata offset {known[1]}"
            )

    def _judge_answer(self, is_granted: bool, body: object) -> None:
        error = getattr(body, "error", ErrorCode.NONE)
        if (error is ErrorCode.NONE) != is_granted:
            decided = "granted" if is_granted else "refused"
            self._jury.report(self.name, f"a request that was {decided} is answered with {body}")

    def _judge_others(self, name: str, before: MetadataImage, image: MetadataImage) -> None:
        """Judge that a step leaves all topics but that of the name as they are, and where their replicas are."""
        for each in sorted({*before.topics.twin(), *image.topics.twin()} - {name}):
            was, now = before.topics.get(each), image.topics.get(each)
            if was is not now and _outline(was) != _outline(now):
                self._jury.report(self.name, f"topic {each} has become {now}, and nobody has asked for it")

    def _report(self, body: TopicRequest, what: str) -> None:
        self._jury.report(self.name, f"{body} {what}")


def _outline(topic: TopicImage | None) -> tuple[str, Configs, Assignment] | None:
    return None if topic is None else outline(topic)


def _may_be_refused(call: int, body: TopicRequest, effects: Sequence[object], image: MetadataImage) -> bool:
    """Whether the controller may refuse the request, whatever it asks for: it closes, it cannot write it, or it must
    not trust who sent it."""
    asked: Configs = getattr(body, "configs", ())
    # A topic whose properties fitted into a batch of an earlier life may have more of them than fit now.
    known = image.topics.get(body.name)
    configs = asked if known is None else (*known.configs, *asked)
    is_large = sum(len(name) + len(value) for name, value in configs) > _MOST_TEXT
    return is_large or not _is_trusted(body.header, image) or _is_closing(call, effects)


def _is_closing(call: int, effects: Sequence[object]) -> bool:
    """Whether the controller has answered at once that it shuts down."""
    return any(
        type(effect) is Reply
        and effect.call == call
        and getattr(effect.body, "error", ErrorCode.NONE) is ErrorCode.NOT_CONTROLLER
        for effect in effects
    )


def _is_trusted(header: Header | None, image: MetadataImage) -> bool:
    """Whether the request is of a client, or was forwarded by the registered process of a broker of this cluster."""
    if header is None:
        return True
    broker = image.brokers.get(header.broker_id)
    return (
        broker is not None
        and header.cluster_id in ("", image.cluster_id)
        and (header.broker_epoch, header.incarnation) == (broker.broker_epoch, broker.incarnation)
    )
