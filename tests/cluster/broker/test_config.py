"""Settings of a broker: Kafka's defaults, and the pairs that cannot hold together."""

from __future__ import annotations

import pytest

from cluster.core.broker.broker import Broker
from cluster.core.config import BrokerConfig
from storage.disk.handle_pool import NO_LIMIT
from storage.draws import Draws
from storage.errors import ConfigError
from tests.storage.logs import new_disk, new_file_system


def test_defaults_are_kafkas() -> None:
    config = BrokerConfig(node_id=1)
    assert config.replica_lag_time_max_ms == 30_000
    assert config.replica_fetch_wait_max_ms == 500
    assert config.replica_fetch_max_bytes == 1 << 20
    assert config.replica_fetch_response_max_bytes == 10 << 20
    assert config.broker_heartbeat_interval_ms == 2_000
    assert config.broker_session_timeout_ms == 9_000


@pytest.mark.parametrize(
    "settings",
    [
        {"replica_fetch_wait_max_ms": 30_001},  # above the lag time
        {"replica_socket_timeout_ms": 499},  # below the fetch wait
        {"broker_heartbeat_interval_ms": 9_000},  # not below the session
        {"retry_backoff_ms": 1_001},  # above its maximum
        {"replica_lag_time_max_ms": 0},
        {"replica_fetch_wait_max_ms": -1},
        {"node_id": -1},
        {"log_open_handles_max": -1},
    ],
)
def test_settings_that_cannot_hold_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig(**{"node_id": 1, **settings})  # type: ignore[arg-type]  # ints only


def test_the_limit_of_open_handles_is_that_of_the_brokers_file_system() -> None:
    disk = new_disk()
    for given, limit in ((0, NO_LIMIT), (7, 7)):
        fs = new_file_system(disk)
        Broker(BrokerConfig(node_id=1, log_open_handles_max=given), fs, "data", Draws(1))
        assert fs.handles.limit == limit
