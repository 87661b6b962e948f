"""The bounds of what one step does: which there may be, and that a log which is opened has them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from cluster.core.bounds import StepBounds
from cluster.core.messages import TopicPartition
from cluster.core.metadata.records import PartitionRecord, TopicRecord
from storage.errors import ConfigError
from tests.cluster.broker.setup import BrokerSetup

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("name", [each.name for each in fields(StepBounds)])
def test_a_bound_without_progress_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}=0: must be at least "):
        StepBounds(**{name: 0})
    assert getattr(StepBounds(**{name: 2}), name) == 2


def test_one_segment_a_step_is_refused() -> None:
    """An empty active segment alone may be all that a cut comes to, and the next cut comes no further."""
    with pytest.raises(ConfigError, match=r"^segments=1: must be at least 2$"):
        StepBounds(segments=1)


def test_a_log_that_is_opened_has_the_bounds_of_its_broker() -> None:
    setup = BrokerSetup(steps=StepBounds(batches=3, snapshot_producers=7))
    setup.boot(
        TopicRecord(name="t", topic_id="1f" * 16),
        PartitionRecord(topic="t", partition=0, replicas=(1,), isr=(1,), leader=1),
    )
    log = setup.broker.replicas()[T0].log
    assert (log.truncation.batches_a_slice, log.flushes.most_in_a_roll) == (3, 7)
