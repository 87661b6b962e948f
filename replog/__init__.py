"""replog: a Kafka-style replicated log on Kafka's bytes, and the simulator that breaks it on purpose.

All public names are here. Each is loaded when it is first used, so that reading a segment does not import gRPC.
"""

from __future__ import annotations

# First, because from here on Ctrl-C ends the command with one line.
# isort: off
from replog import _early  # noqa: F401

# isort: on
import importlib
import importlib.util
from typing import TYPE_CHECKING

from replog._interpreted import use_sources
from replog._names import check_names

if TYPE_CHECKING:
    from cluster.core.client.config import AdminConfig as AdminConfig
    from cluster.core.client.config import ConsumerConfig as ConsumerConfig
    from cluster.core.client.config import OffsetReset as OffsetReset
    from cluster.core.client.config import ProducerConfig as ProducerConfig
    from cluster.core.client.effects import Described as Described
    from cluster.core.client.effects import EndOfPartition as EndOfPartition
    from cluster.core.client.effects import Fetched as Fetched
    from cluster.core.client.effects import PartitionDeleted as PartitionDeleted
    from cluster.core.client.effects import PositionLost as PositionLost
    from cluster.core.client.effects import PositionReset as PositionReset
    from cluster.core.client.effects import TopicMissing as TopicMissing
    from cluster.core.client.effects import Truncated as Truncated
    from cluster.core.client.starts import AtTime as AtTime
    from cluster.core.client.starts import BeforeEnd as BeforeEnd
    from cluster.core.errors import ClusterError as ClusterError
    from cluster.core.errors import ErrorCode as ErrorCode
    from cluster.core.messages import MetadataResponse as MetadataResponse
    from cluster.core.messages import TopicPartition as TopicPartition
    from cluster.shell.clients import DEFAULT_BOOTSTRAP as DEFAULT_BOOTSTRAP
    from cluster.shell.clients import Admin as Admin
    from cluster.shell.clients import AsyncAdmin as AsyncAdmin
    from cluster.shell.clients import AsyncConsumer as AsyncConsumer
    from cluster.shell.clients import AsyncProducer as AsyncProducer
    from cluster.shell.clients import Consumer as Consumer
    from cluster.shell.clients import ConsumerEvent as ConsumerEvent
    from cluster.shell.clients import DeliveryError as DeliveryError
    from cluster.shell.clients import Producer as Producer
    from cluster.shell.clients import RecordMetadata as RecordMetadata
    from pipeline import register as register
    from sim.judgement import Verdict as Verdict
    from sim.run import RunResult as RunResult
    from sim.run import run_scenario as run_scenario
    from sim.scenario.loading import ScenarioError as ScenarioError
    from sim.scenario.loading import load_scenario as load_scenario
    from sim.scenario.model import Scenario as Scenario
    from storage.batch import RecordBatch as RecordBatch
    from storage.batch import TimestampType as TimestampType
    from storage.batch import build_batch as build_batch
    from storage.batch import iterate_batches as iterate_batches
    from storage.batch.record import Header as Header
    from storage.batch.record import Record as Record
    from storage.codec.compression import Compression as Compression
    from storage.config import LogConfig as LogConfig
    from storage.disk.os_filesystem import OsFileSystem as OsFileSystem
    from storage.errors import ConfigError as ConfigError
    from storage.errors import CorruptBatch as CorruptBatch
    from storage.errors import InvalidRecord as InvalidRecord
    from storage.errors import InvalidTopic as InvalidTopic
    from storage.errors import OffsetOutOfRange as OffsetOutOfRange
    from storage.errors import StorageError as StorageError
    from storage.log import PartitionLog as PartitionLog

# The module of each name.
_HOMES = {
    "Admin": "cluster.shell.clients",
    "AdminConfig": "cluster.core.client.config",
    "AsyncAdmin": "cluster.shell.clients",
    "AsyncConsumer": "cluster.shell.clients",
    "AsyncProducer": "cluster.shell.clients",
    "AtTime": "cluster.core.client.starts",
    "BeforeEnd": "cluster.core.client.starts",
    "ClusterError": "cluster.core.errors",
    "Compression": "storage.codec.compression",
    "ConfigError": "storage.errors",
    "Consumer": "cluster.shell.clients",
    "ConsumerConfig": "cluster.core.client.config",
    "ConsumerEvent": "cluster.shell.clients",
    "CorruptBatch": "storage.errors",
    "DEFAULT_BOOTSTRAP": "cluster.shell.clients",
    "DeliveryError": "cluster.shell.clients",
    "Described": "cluster.core.client.effects",
    "EndOfPartition": "cluster.core.client.effects",
    "ErrorCode": "cluster.core.errors",
    "Fetched": "cluster.core.client.effects",
    "Header": "storage.batch.record",
    "InvalidRecord": "storage.errors",
    "InvalidTopic": "storage.errors",
    "LogConfig": "storage.config",
    "MetadataResponse": "cluster.core.messages",
    "OffsetOutOfRange": "storage.errors",
    "OffsetReset": "cluster.core.client.config",
    "OsFileSystem": "storage.disk.os_filesystem",
    "PartitionDeleted": "cluster.core.client.effects",
    "PartitionLog": "storage.log",
    "PositionLost": "cluster.core.client.effects",
    "PositionReset": "cluster.core.client.effects",
    "Producer": "cluster.shell.clients",
    "ProducerConfig": "cluster.core.client.config",
    "Record": "storage.batch.record",
    "RecordBatch": "storage.batch",
    "RecordMetadata": "cluster.shell.clients",
    "RunResult": "sim.run",
    "Scenario": "sim.scenario.model",
    "ScenarioError": "sim.scenario.loading",
    "StorageError": "storage.errors",
    "TimestampType": "storage.batch",
    "TopicMissing": "cluster.core.client.effects",
    "TopicPartition": "cluster.core.messages",
    "Truncated": "cluster.core.client.effects",
    "Verdict": "sim.judgement",
    "build_batch": "storage.batch",
    "iterate_batches": "storage.batch",
    "load_scenario": "sim.scenario.loading",
    "register": "pipeline",
    "run_scenario": "sim.run",
}
# What to install for the names that need more than the core, and a package that shows whether it is installed.
_EXTRAS = {"register": ("spark", "pyspark")}

__version__ = "0.1.0"
__all__ = [
    "DEFAULT_BOOTSTRAP",
    "Admin",
    "AdminConfig",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AtTime",
    "BeforeEnd",
    "ClusterError",
    "Compression",
    "ConfigError",
    "Consumer",
    "ConsumerConfig",
    "ConsumerEvent",
    "CorruptBatch",
    "DeliveryError",
    "Described",
    "EndOfPartition",
    "ErrorCode",
    "Fetched",
    "Header",
    "InvalidRecord",
    "InvalidTopic",
    "LogConfig",
    "MetadataResponse",
    "OffsetOutOfRange",
    "OffsetReset",
    "OsFileSystem",
    "PartitionDeleted",
    "PartitionLog",
    "PositionLost",
    "PositionReset",
    "Producer",
    "ProducerConfig",
    "Record",
    "RecordBatch",
    "RecordMetadata",
    "RunResult",
    "Scenario",
    "ScenarioError",
    "StorageError",
    "TimestampType",
    "TopicMissing",
    "TopicPartition",
    "Truncated",
    "Verdict",
    "build_batch",
    "iterate_batches",
    "load_scenario",
    "register",
    "run_scenario",
]

use_sources()
check_names()
# `from replog import *` brings what this installation has.
if importlib.util.find_spec("pyspark") is None:
    __all__.remove("register")


def _load(name: str) -> object:
    """Loads a public name. Raises ModuleNotFoundError, with what to install, where its extra is missing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'replog' has no attribute {name!r}")
    if name in _EXTRAS:
        extra, package = _EXTRAS[name]
        if importlib.util.find_spec(package) is None:
            text = f"replog.{name} needs {package}: pip install 'replog[{extra}]'"
            raise ModuleNotFoundError(text, name=package)
    return getattr(importlib.import_module(_HOMES[name]), name)


if not TYPE_CHECKING:
    # A type checker that saw this function would take every misspelled name for an object.
    __getattr__ = _load


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
