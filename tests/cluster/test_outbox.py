"""The effects of a step: which of them are not made."""

from __future__ import annotations

import errno
import logging

import pytest

from cluster.core.effects import Observe, RunJob
from cluster.core.events import JobDone
from cluster.core.outbox import Outbox
from cluster.shell.runtime import log_observation, unlogged_observations


def test_observations_of_hidden_kinds_are_not_made() -> None:
    outbox = Outbox()
    outbox.hidden = frozenset({"replica.appended"})
    outbox.observe("replica.appended", last_offset=1)
    outbox.observe("log.truncated", offset=1)
    assert outbox.take() == [Observe(kind="log.truncated", fields=(("offset", 1),))]


def test_what_a_job_raises_is_unheard_until_its_handler_hears_of_it() -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "of a job")

    outbox = Outbox()
    heard: list[Exception | None] = []
    for _ in range(2):
        outbox.run_job("search", fail, lambda now_ms, error: heard.append(error))
    jobs = [effect for effect in outbox.take() if isinstance(effect, RunJob)]
    for job in jobs:
        with pytest.raises(OSError, match="of a job") as raised:
            job.work()
        assert raised.value in outbox.unheard()
    first, second = outbox.unheard()
    outbox.on_job_done(0, JobDone(job=jobs[0].job, error=first))
    assert (heard, outbox.unheard()) == ([first], [second])
    outbox.forget_all()
    outbox.on_job_done(0, JobDone(job=jobs[1].job, error=second))
    assert (heard, outbox.unheard()) == ([first], [second])


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_hidden_are_the_kinds_that_would_not_be_logged(level: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(level, logger="cluster.shell.runtime"):
        for kind in ("replica.appended", "replica.high_watermark", "produce.acknowledged", "log.truncated"):
            log_observation(Observe(kind=kind))
            is_logged = any(record.getMessage().startswith(kind) for record in caplog.records)
            assert is_logged == (kind not in unlogged_observations()), (level, kind)
