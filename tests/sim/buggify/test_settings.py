"""Settings that buggify points change: what a client may be configured with at all."""

from __future__ import annotations

import pytest

from cluster.core.client.config import ConsumerConfig
from cluster.core.config import BrokerConfig
from sim.buggify.buggify import Buggify
from sim.buggify.settings import broker_config, consumer_config
from storage.draws import Draws


@pytest.mark.parametrize("wait_ms", [50, 600, 1_400])
def test_an_impatient_consumer_waits_less_than_its_requests(wait_ms: int) -> None:
    config = ConsumerConfig(fetch_max_wait_ms=wait_ms, request_timeout_ms=1_500)
    changed = consumer_config(Buggify(Draws(1), ["short-patience"], percent=100), "consumer-1", config)
    assert changed.request_timeout_ms == 400
    assert changed.fetch_max_wait_ms == min(wait_ms, 200)


def test_pro8_few_requests_may_wait_and_still_those_of_all_followers() -> None:
    config = BrokerConfig(node_id=1)
    changed = broker_config(Buggify(Draws(1), ["few-waiting"], percent=100), "broker-1", config)
    assert config.max_parked_requests > 4 == changed.max_parked_requests
