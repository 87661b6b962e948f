"""Kafka's own tests of its storage by name, and those of them that test something that does not exist here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# One `Class.method` on each line, of the version examined (4.0.0-SNAPSHOT, 25 October 2024), parameters left out.
NAMES = tuple((Path(__file__).parent / "kafka_tests.txt").read_text(encoding="utf-8").split())

# Kafka has this test, but without the annotation that makes it run.
NOT_RUN = ("UnifiedLogTest.testBackgroundDeletionWithIOException",)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """Tests of one class whose subject does not exist here, and the reason."""

    test_class: str
    tests: tuple[str, ...]
    reason: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.test_class}.{test}" for test in self.tests)


_NO_TIERS = "no tiered storage"
_NO_METRICS = "no metrics of this kind"
_OLD_FORMATS = "message.format.version, which Kafka 4.0 has dropped: what is in a batch decides"
_ONE_THREAD = "a log has one owner: nothing changes between two steps"

NOT_APPLICABLE = (
    NotApplicable(
        test_class="LogSegmentsTest",
        tests=("testSizeForLargeLogs",),
        reason="integers have no width",
    ),
    NotApplicable(
        test_class="OffsetCheckpointFileWithFailureHandlerTest",
        tests=("testLazyOffsetCheckpointFileInvalidLogDir",),
        reason="a manager has the checkpoints of its own directory and no others",
    ),
    NotApplicable(
        test_class="OffsetCheckpointFileWithFailureHandlerTest",
        tests=("testWriteIfDirExistsShouldNotThrowWhenDirNotExists",),
        reason="no checkpoint is written beside a rename of its directory",
    ),
    NotApplicable(
        test_class="DefaultRecordBatchTest",
        tests=("testBufferReuseInSkipKeyValueIterator", "testZstdJniForSkipKeyValueIterator"),
        reason="buffer pools and native calls of the Java runtime",
    ),
    NotApplicable(
        test_class="MemoryRecordsBuilderTest",
        tests=(
            "shouldThrowIllegalStateExceptionOnBuildWhenAborted",
            "shouldResetBufferToInitialPositionOnAbort",
            "shouldThrowIllegalStateExceptionOnCloseWhenAborted",
            "shouldThrowIllegalStateExceptionOnAppendWhenAborted",
            "shouldThrowIllegalStateExceptionOnAppendWhenClosed",
        ),
        reason="a builder has no buffer to give back: it is dropped, not aborted, and may go on after `build`",
    ),
    NotApplicable(
        test_class="MemoryRecordsBuilderTest",
        tests=("testWriteEndTxnMarkerNonTransactionalBatch",),
        reason="a marker's batch is made as a whole, and always transactional",
    ),
    NotApplicable(
        test_class="MemoryRecordsBuilderTest",
        tests=("testLegacyCompressionRate",),
        reason="sizes are not estimated from an earlier ratio",
    ),
    NotApplicable(
        test_class="Lz4CompressionTest",
        tests=("testSkip",),
        reason="a frame is unpacked whole, there is no stream to skip in",
    ),
    NotApplicable(
        test_class="UnifiedLogTest",
        tests=(
            "testFetchOffsetByTimestampFromRemoteStorage",
            "testFetchLatestTieredTimestampNoRemoteStorage",
            "testFetchLatestTieredTimestampWithRemoteStorage",
            "testRemoteLogStorageIsDisabledOnInternalAndRemoteLogMetadataTopic",
            "testStartOffsetsRemoteLogStorageIsEnabled",
            "testActiveSegmentDeletionDueToRetentionTimeBreachWithRemoteStorage",
            "testSegmentDeletionEnabledBeforeUploadToRemoteTierWhenLogStartOffsetMovedAhead",
            "testRetentionOnLocalLogDeletionWhenRemoteLogCopyEnabledAndDefaultLocalRetentionBytes",
            "testRetentionOnLocalLogDeletionWhenRemoteLogCopyEnabledAndDefaultLocalRetentionMs",
            "testRetentionOnLocalLogDeletionWhenRemoteLogCopyDisabled",
            "testIncrementLocalLogStartOffsetAfterLocalLogDeletion",
            "testFetchOffsetByTimestampShouldReadOnlyLocalLogWhenLogIsEmpty",
        ),
        reason=_NO_TIERS,
    ),
    NotApplicable(
        test_class="UnifiedLogTest",
        tests=("testLogOffsetsListener", "testUpdateLogOffsetsListener"),
        reason="no listeners: the caller that moves the high watermark gets the new value as the result",
    ),
    NotApplicable(
        test_class="LogLoaderTest",
        tests=(
            "testProducerSnapshotsRecoveryAfterUncleanShutdownV1",
            "testSkipTruncateAndReloadIfOldMessageFormatAndNoCleanShutdown",
            "testSkipTruncateAndReloadIfOldMessageFormatAndCleanShutdown",
            "testLeaderEpochCacheClearedAfterStaticMessageFormatDowngrade",
        ),
        reason=_OLD_FORMATS,
    ),
    NotApplicable(
        test_class="LogLoaderTest",
        tests=("testLogStartOffsetWhenRemoteStorageIsEnabled",),
        reason=_NO_TIERS,
    ),
    NotApplicable(
        test_class="LogManagerTest",
        tests=(
            "testLogRecoveryMetrics",
            "testLogRecoveryMetricsShouldBeRemovedAfterLogRecovered",
            "testMetricsExistWhenLogIsRecreatedBeforeDeletion",
            "testMetricsAreRemovedWhenMovingCurrentToFutureLog",
        ),
        reason=_NO_METRICS,
    ),
    NotApplicable(
        test_class="LogManagerTest",
        tests=("testCheckpointLogStartOffsetForRemoteTopic",),
        reason=_NO_TIERS,
    ),
    NotApplicable(
        test_class="LogManagerTest",
        tests=("testConfigChangeGetsCleanedUp", "testConfigChangesWithNoLogGettingInitialized"),
        reason=_ONE_THREAD,
    ),
    NotApplicable(
        test_class="LogManagerTest",
        tests=("testBrokerConfigChangeDeliveredToAllLogs",),
        reason="a broker's own settings do not change while it runs",
    ),
    NotApplicable(
        test_class="LogManagerTest",
        tests=("testCreateLogWithTargetedLogDirectorySetAsUnknownWithoutAnyOfflineDirectories",),
        reason="the controller names no directories",
    ),
    NotApplicable(
        test_class="LogManagerTest",
        tests=("testIsStrayKraftMissingTopicId",),
        reason="decided otherwise: a log whose topic id is lost is kept",
    ),
    NotApplicable(
        test_class="LogConfigTest",
        tests=(
            "testLocalLogRetentionDerivedProps",
            "testLocalLogRetentionDerivedDefaultProps",
            "testLocalLogRetentionProps",
            "testInvalidLocalLogRetentionProps",
            "testEnableRemoteLogStorageOnCompactedTopic",
            "testEnableRemoteLogStorage",
            "testDisableRemoteLogStorage",
            "testTopicCreationWithInvalidRetentionTime",
            "testTopicCreationWithInvalidRetentionSize",
            "testValidateBrokerLogConfigs",
            "testValidRemoteLogCopyDisabled",
            "testValidRemoteLogDeleteOnDisable",
            "testInValidRemoteConfigsInZK",
        ),
        reason=_NO_TIERS,
    ),
    NotApplicable(
        test_class="LogConfigTest",
        tests=("testToHtmlTable", "testToHtml", "testToEnrichedRst", "testToRst"),
        reason="no pages are made from the settings",
    ),
    NotApplicable(
        test_class="LogConfigTest",
        tests=("shouldValidateThrottledReplicasConfig",),
        reason="replication is not throttled: the setting is refused",
    ),
    NotApplicable(
        test_class="LogConfigTest",
        tests=("testTimestampBeforeMaxMsUsesDeprecatedConfig",),
        reason="message.timestamp.difference.max.ms, which Kafka 4.0 has dropped, is refused",
    ),
    NotApplicable(
        test_class="LogConfigTest",
        tests=("testOverriddenConfigsAsLoggableString",),
        reason="no setting is a secret",
    ),
    NotApplicable(
        test_class="LogConfigTest",
        tests=("testValidateWithMetadataVersionJbodSupport",),
        reason="there is one metadata version",
    ),
    NotApplicable(
        test_class="LogCleanerTest",
        tests=("testRemoveMetricsOnClose", "testMetricsActiveAfterReconfiguration", "testMaxCleanTimeSecs"),
        reason=_NO_METRICS,
    ),
    NotApplicable(
        test_class="LogCleanerTest",
        tests=("testReconfigureLogCleanerIoMaxBytesPerSecond",),
        reason="compaction is cut in slices, not throttled",
    ),
    NotApplicable(
        test_class="LogCleanerManagerTest",
        tests=("testAlterCheckpointDirShouldRemoveDataInSrcDirAndAddInNewDir",),
        reason="a log stays in its log directory",
    ),
    NotApplicable(
        test_class="LogCleanerManagerTest",
        tests=("testHandleLogDirFailureShouldRemoveDirAndData",),
        reason="each log directory has a cleaner of its own, which ends with the directory",
    ),
    NotApplicable(
        test_class="LogCleanerIntegrationTest",
        tests=("testIsThreadFailed",),
        reason="there are no cleaner threads to die: slices are jobs of the broker, and their errors come back",
    ),
    NotApplicable(
        test_class="LogCleanerParameterizedIntegrationTest",
        tests=("cleanerConfigUpdateTest",),
        reason="a broker's own settings do not change while it runs",
    ),
    NotApplicable(
        test_class="DumpLogSegmentsTest",
        tests=(
            "testDumpRemoteLogMetadataEmpty",
            "testDumpRemoteLogMetadataOneRecordOneBatch",
            "testDumpRemoteLogMetadataMultipleRecordsOneBatch",
            "testDumpRemoteLogMetadataMultipleRecordsMultipleBatches",
            "testDumpRemoteLogMetadataNonZeroStartingOffset",
            "testDumpRemoteLogMetadataWithCorruption",
        ),
        reason="no tiered storage: the option is refused",
    ),
)


def classes() -> dict[str, tuple[str, ...]]:
    """Returns every `Class.method` by its class, in Kafka's order."""
    found: dict[str, tuple[str, ...]] = {}
    for name in NAMES:
        test_class = name.split(".")[0]
        found[test_class] = (*found.get(test_class, ()), name)
    return found


def misnamed(held: set[str]) -> Iterator[str]:
    """Yield a line for each wrong name among the marks `held` and in the table above."""
    known, seen = {*NAMES, *NOT_RUN}, set[str]()
    for name in sorted(held - known):
        yield f"Kafka has no test {name}"
    for entry in NOT_APPLICABLE:
        for name in entry.names:
            if name not in known:
                yield f"listed as not applicable, but Kafka has no test {name}"
            elif name in held or name in seen:
                yield f"listed as not applicable, but held or listed twice: {name}"
            seen.add(name)
