"""Points at settings: each life of a node or client may have others than the scenario says.

No setting is among them that a checker takes from the scenario, such as the time-out of sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cluster.core.client.config import ConsumerConfig, ProducerConfig
from cluster.core.config import BrokerConfig
from cluster.core.controller.config import ControllerConfig
from sim.buggify.buggify import Buggify
from storage.codec.compression import Compression
from storage.config import LogConfig

Settings = Mapping[str, int]
# More than any answer of a run holds.
_MANY_BYTES = 1 << 24
# With less a seed whose broker is away for seconds would do little else than to ask again.
_SOON_MS = 10
_OFTEN_MS = 50
_RARELY_MS = 60_000

_BROKER: Mapping[str, Settings] = {
    "eager-broker": {
        "replica_fetch_backoff_ms": _SOON_MS,
        "retry_backoff_ms": _SOON_MS,
        "retry_backoff_max_ms": _SOON_MS,
    },
    "tiny-fetches": {"replica_fetch_max_bytes": 1, "replica_fetch_response_max_bytes": 1},
    "tiny-answers": {"fetch_max_bytes": 1},
    "tiny-metadata-fetches": {"controller_quorum_fetch_max_bytes": 1},
    # Fewer would not hold the fetches of all followers, which then ask without rest.
    "few-waiting": {"max_parked_requests": 4},
    "restless-tasks": {
        "log_initial_task_delay_ms": 0,
        "log_retention_check_interval_ms": _OFTEN_MS,
        "producer_id_expiration_check_interval_ms": _OFTEN_MS,
    },
    "restless-cleaner": {
        "log_cleaner_backoff_ms": 20,
        "log_cleaner_dedupe_buffer_size": 200,
        "log_cleaner_io_buffer_size": 64,
    },
    "restless-checkpoints": {
        "replica_high_watermark_checkpoint_interval_ms": _OFTEN_MS,
        "log_flush_offset_checkpoint_interval_ms": _OFTEN_MS,
        "log_flush_start_offset_checkpoint_interval_ms": _OFTEN_MS,
    },
    "rare-checkpoints": {
        "replica_high_watermark_checkpoint_interval_ms": _RARELY_MS,
        "log_flush_offset_checkpoint_interval_ms": _RARELY_MS,
        "log_flush_start_offset_checkpoint_interval_ms": _RARELY_MS,
    },
}
# What a step does at most; the rest of the work needs more steps, or a job.
_STEPS: Mapping[str, Settings] = {
    "few-logs-a-step": {"logs": 1, "producers": 1},
    "few-segments-a-step": {"segments": 2, "deleted_segments": 1},
    "few-batches-a-step": {"batches": 2, "snapshot_producers": 1},
    "short-searches": {"searched_batches": 2, "searched_segments": 1, "searched_bytes": 100},
    "few-deadlines": {"spare_deadlines": 1},
    "small-compactions": {"planned_segments": 1, "swapped_segments": 2, "compacted_bytes": 64},
}
# What a broker takes where a topic does not say it.
_LOG: Mapping[str, Settings] = {
    "index-each-batch": {"index_interval_bytes": 1},
    "short-index": {"segment_index_bytes": 24},
    "rolls-early": {"segment_ms": 200},
    "flushes-each": {"flush_messages": 1},
    "deletes-at-once": {"file_delete_delay_ms": 0},
}
_CONTROLLER: Mapping[str, Settings] = {
    "producer-ids-one-by-one": {"producer_id_block_size": 1},
    "snapshots-each": {"metadata_log_max_record_bytes_between_snapshots": 1},
    "small-metadata-batches": {"metadata_max_batch_bytes": 4 << 10},
}
_PRODUCER: Mapping[str, Settings] = {
    "no-linger": {"linger_ms": 0},
    "long-linger": {"linger_ms": 150},
    "one-record-batches": {"batch_size": 1},
    "short-block": {"max_block_ms": 250},
    "one-in-flight": {"max_in_flight_requests_per_connection": 1},
    "short-patience": {"request_timeout_ms": 400},
    "eager-client": {"retry_backoff_ms": _SOON_MS},
    "restless-metadata": {"metadata_max_age_ms": 100},
}
_CONSUMER: Mapping[str, Settings] = {
    "short-patience": {"request_timeout_ms": 400},
    "eager-client": {"retry_backoff_ms": _SOON_MS},
    "restless-metadata": {"metadata_max_age_ms": 100},
    # With a long wait for many bytes each record or two would take that long, and a run many minutes.
    "reads-few-records": {"most_read_records": 2, "fetch_max_wait_ms": 50},
    "reads-one-batch": {"fetch_max_bytes": 1, "max_partition_fetch_bytes": 1},
    # With fewer bytes than a batch as its limit a broker may take a wait for each batch.
    "reads-patiently": {"fetch_min_bytes": _MANY_BYTES, "fetch_max_wait_ms": 50},
}
_CODECS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)


def _changes(buggify: Buggify, place: str, table: Mapping[str, Settings]) -> dict[str, int]:
    """Returns the settings of all points of the table that fire now; of two for one setting the later counts."""
    found: dict[str, int] = {}
    for point, settings in table.items():
        if buggify.fires(point, place):
            found |= settings
    return found


def broker_config(buggify: Buggify, place: str, config: BrokerConfig) -> BrokerConfig:
    """Returns the settings of a new life of a broker."""
    changes = _changes(buggify, place, _BROKER)
    if buggify.fires("quick-heartbeats", place):
        changes["broker_heartbeat_interval_ms"] = max(1, config.broker_heartbeat_interval_ms // 4)
    if buggify.fires("little-work", place):
        # With 1 the first set of a step is checked at once, unless an earlier one of its partition waits.
        changes["max_append_work"] = buggify.between(0, 1, "little-work", place)
    log: LogConfig = replace(config.log, **_changes(buggify, place, _LOG))  # type: ignore[arg-type]
    steps = replace(config.steps, **_changes(buggify, place, _STEPS))
    # Settings name fields that are ints, which mypy does not know.
    return replace(config, log=log, steps=steps, **changes)  # type: ignore[arg-type]


def controller_config(buggify: Buggify, place: str, config: ControllerConfig) -> ControllerConfig:
    """Returns the settings of a new life of the controller."""
    return replace(config, **_changes(buggify, place, _CONTROLLER))  # type: ignore[arg-type]


def producer_config(buggify: Buggify, place: str, config: ProducerConfig) -> ProducerConfig:
    """Returns the settings of a new life of a producer."""
    codec = config.compression_type
    if buggify.fires("compressing-producer", place):
        codec = _CODECS[buggify.between(0, len(_CODECS) - 1, "compressing-producer", place)]
    changes = _changes(buggify, place, _PRODUCER)
    # A record may not wait so long that no time is left for its request.
    most_ms = config.delivery_timeout_ms - changes.get("request_timeout_ms", config.request_timeout_ms)
    changes["linger_ms"] = min(changes.get("linger_ms", config.linger_ms), most_ms)
    return replace(config, compression_type=codec, **changes)  # type: ignore[arg-type]


def consumer_config(buggify: Buggify, place: str, config: ConsumerConfig) -> ConsumerConfig:
    """Returns the settings of a new life of a consumer, whose requests outlast the wait of a fetch."""
    changes = _changes(buggify, place, _CONSUMER)
    wait_ms = changes.get("fetch_max_wait_ms", config.fetch_max_wait_ms)
    patience_ms = changes.get("request_timeout_ms", config.request_timeout_ms)
    changes["fetch_max_wait_ms"] = min(wait_ms, patience_ms // 2)
    return replace(config, **changes)  # type: ignore[arg-type]
