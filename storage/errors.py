"""The errors that storage raises. Each class has its evidence and Kafka's protocol error code, where there is one."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, TypeVar

Error = TypeVar("Error", bound=BaseException)


def made_again(kind: type[Error], *arguments: object) -> Error:
    """Returns an error as pickle and copy need it: with its `args`, and without a call of `__init__`.

    An exception's own way calls `__init__` with `args`, the message, which is not what all classes take.
    """
    return kind.__new__(kind, *arguments)


class StorageError(Exception):
    """The parent of all errors of storage. `code` is Kafka's protocol error code; `retriable` is whether Kafka's client
    retries it.
    """

    # KAFKA_STORAGE_ERROR.
    code: ClassVar[int] = 56
    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        return made_again, (type(self), *self.args), self.__dict__


class OutOfHandles(StorageError):
    """The process, or the machine, has no descriptor left for a file. Nothing has changed, and no disk has failed: the
    same call may succeed later.
    """

    retriable = True


class CorruptBatch(StorageError):
    """The bytes at `position` of `path` are no whole, sound batch; all before them is sound. Kafka: CorruptRecord."""

    code = 2
    retriable = True

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}")
        self.path, self.position, self.reason = path, position, reason


class TruncatedWhileRead(StorageError):
    """A segment was truncated while a reader on another thread read it; the read may be tried again."""

    retriable = True


class RecordError(NamedTuple):
    """The reason why one record of a produced batch was refused; `record_index` counts within the batch (KIP-467)."""

    record_index: int
    message: str


class InvalidRecord(StorageError):
    """A record or batch breaks a rule of its format or of its topic. Kafka: InvalidRecordException.

    `record_errors` lists every refused record of a produced batch (Kafka: RecordValidationException).
    """

    code = 87

    def __init__(self, message: str = "", record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class UnpacksTooFar(InvalidRecord):
    """Compressed records unpack to more than the caller's limit; nothing else is known to be wrong with them."""


class ValidationTakesLong(StorageError):
    """The checks of a produced set would take longer than a step may: not a flaw of the set, which must be checked in
    slices.
    """


class ReadTakesLong(StorageError):
    """A search reads more than a step may, a batch that unpacks to much or many batches: no flaw of them, but it must
    be done elsewhere.
    """


class ReadGoesOn(ReadTakesLong):
    """A search has read what a step may, and knows more of the log now: the same call in a later step goes on."""


class InvalidTimestamp(InvalidRecord):
    """A record's timestamp is outside the limits of its topic. Kafka: InvalidTimestampException."""

    code = 32


class OffsetOutOfRange(StorageError):
    """An offset outside the range that its caller may name, both ends inclusive. Kafka: OffsetOutOfRangeException."""

    code = 1

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{log_start_offset}, {log_end_offset}]")
        self.offset, self.log_start_offset, self.log_end_offset = offset, log_start_offset, log_end_offset


class SegmentOffsetOverflow(StorageError):
    """An offset does not fit the segment's 31 relative bits; nothing was written."""

    def __init__(self, path: str, base_offset: int, offset: int) -> None:
        super().__init__(f"{path}: offset {offset} does not fit a segment based at {base_offset}")
        self.path, self.base_offset, self.offset = path, base_offset, offset


class InvalidOffset(StorageError):
    """An index append that does not advance. Kafka: InvalidOffsetException."""


class CorruptIndex(StorageError):
    """An index file whose length or entries cannot be right. Kafka: CorruptIndexException."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class CorruptSnapshot(StorageError):
    """A producer snapshot whose version, length or CRC is wrong."""


class CorruptCheckpoint(StorageError):
    """A text checkpoint that does not parse; `line` counts from 1 and is None where no single line is at fault."""

    def __init__(self, path: str, line: int | None = None, reason: str = "") -> None:
        place = path if line is None else f"{path} line {line}"
        super().__init__(f"{place}: {reason}" if reason else place)
        self.path, self.line, self.reason = path, line, reason


class RecordTooLarge(StorageError):
    """A batch is larger than the topic allows. Kafka: MESSAGE_TOO_LARGE."""

    code = 10


class RecordBatchTooLarge(StorageError):
    """A set of batches is larger than a segment. Kafka: RECORD_LIST_TOO_LARGE."""

    code = 18


class OffsetsOutOfOrder(StorageError):
    """A follower's records go back in offset. Kafka: OffsetsOutOfOrderException."""


class UnexpectedAppendOffset(StorageError):
    """A follower's first offset is below the log end offset. The refused records reach from `first_offset` to
    `last_offset`, both inclusive: if the log is empty, the follower may restart it there (KAFKA-6975).
    """

    def __init__(self, message: str, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset, self.last_offset = first_offset, last_offset


class OffsetsExhausted(StorageError):
    """The log end offset would exceed 2^63 - 1, the last offset there is; nothing was written."""


class OutOfOrderSequence(StorageError):
    """A producer's batch does not continue the sequence of its last one. Kafka: OutOfOrderSequenceException."""

    code = 45


class InvalidProducerEpoch(StorageError):
    """A producer's epoch is below the latest one. Kafka: InvalidProducerEpochException."""

    code = 47


class InvalidTransactionState(StorageError):
    """A batch that the state of its producer's transaction does not allow. Kafka: InvalidTxnStateException."""

    code = 48


class TransactionCoordinatorFenced(StorageError):
    """A marker from a coordinator with an old epoch. Kafka: TransactionCoordinatorFencedException."""

    code = 52


class UnsupportedCompression(StorageError):
    """A codec that is unknown, or does not exist in that magic. Kafka: UnsupportedCompressionTypeException."""

    code = 76


class UnsupportedForMessageFormat(StorageError):
    """A feature that the format of the messages does not have. Kafka: UnsupportedForMessageFormatException."""

    code = 43


class InvalidTopic(StorageError):
    """A topic name that breaks Kafka's rules: 1 to 249 of [a-zA-Z0-9._-], not `.` or `..`."""

    code = 17


class InconsistentTopicId(StorageError):
    """A partition directory belongs to another topic of the same name."""

    code = 103
    retriable = True


class DirectoryInUse(StorageError):
    """Another process holds the lock of the log directory."""


class DirectoryFailed(StorageError):
    """The disk refused an operation that a log directory needs outside of its logs: on a name, on a checkpoint, or on
    the mark of a clean stop. Its cause is the OSError.
    """


class LogHalfMade(StorageError):
    """A directory failed while a log was made in it, or later, and is offline now; on its disk there may be a log.

    Its cause is the error, if it came up now. A log in another directory would be a second one at the next start, and
    an empty one could be taken for the other.
    """


class NoLogDirectory(StorageError):
    """None of a broker's log directories can be used."""


class ForeignDirectory(StorageError):
    """A directory that is not this node's: another node's, another program's, or one with an unreadable mark."""


class ConfigError(StorageError, ValueError):
    """A configuration that cannot be used. Kafka: ConfigException / INVALID_CONFIG."""

    code = 40


def reason_of(error: OSError) -> str:
    """Returns the file that an OSError names, and the system's message, as one text."""
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}"
