"""Settings that buggify points change: what a client may be configured with at all."""

from __future__ import annotations

import pytest

from cluster.core.client.config import ConsumerConfig
from sim.buggify.buggify import Buggify
from sim.buggify.settings import consumer_config
from storage.draws import Draws


@pytest.mark.parametrize("wait_ms", [50, 600, 1_400])
def test_an_impatient_consumer_waits_less_than_its_requests(wait_ms: int) -> None:
    config = ConsumerConfig(fetch_max_wait_ms=wait_ms, request_timeout_ms=1_500)
    changed = consumer_config(Buggify(Draws(1), ["short-patience"], percent=100), "consumer-1", config)
    assert changed.request_timeout_ms == 400
    assert changed.fetch_max_wait_ms == min(wait_ms, 200)
