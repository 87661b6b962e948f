"""The checks of a produced set that take longer than a step may, slice by slice and in bounded memory.

The result is that of `validate_and_assign`, byte for byte, with offsets from 0 on: `renumbered` stamps the real ones. A
batch is unpacked twice, once to check its records and once to build it again where that is needed, and never held
unpacked; a wrapper of magic 0 or 1 as often again, to find its last offset. Kafka: LogValidator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, final

from storage.batch import (
    CURRENT_MAGIC,
    HEADER_SIZE,
    NO_TIMESTAMP,
    Record,
    RecordBatch,
    TimestampType,
)
from storage.batch.cut_record import CutRecord
from storage.batch.legacy.messages import Wrapper, sliced_messages
from storage.batch.legacy.stream import MessageStream
from storage.batch.pieces import HEADS_HELD, Slices
from storage.batch.record import decode_records, wrap_int64
from storage.batch.record_stream import LargeRecord, RecordStream
from storage.batch.streamed import StreamedBatch
from storage.codec.buffer import Buffer
from storage.codec.compression import Compression, unpack
from storage.codec.varint import encode_varint
from storage.errors import InvalidRecord
from storage.producers.entry import AppendOrigin
from storage.validation.analysis import check_produced
from storage.validation.batch import BatchValidation, batches_of
from storage.validation.checked import NO_EPOCH, NO_OFFSET, CheckedSet, stamped_set
from storage.validation.rebuild import batch_fields
from storage.validation.rules import (
    Assignment,
    RecordChecks,
    ValidationRules,
    check_batch,
    check_batch_size,
)
from storage.validation.sets import SetValidation

_MESSAGES_IN_A_SLICE: Final = 2_000
# A record without a key is checked like one whose key is None.
_SOME_KEY: Final = b""


@final
class SlicedValidation:
    """The checks of one set: call `advance` until `is_done`; then `result` is None for a set without a whole batch.

    A slice handles some 64 KiB of what the set unpacks to. It touches nothing but the set, so it may run on any thread.
    """

    __slots__ = ("_assignment", "_rules", "_slices", "is_done", "result")

    def __init__(self, records: Buffer, rules: ValidationRules, now_ms: int) -> None:
        assert rules.target_magic == CURRENT_MAGIC, rules.target_magic
        self._rules = rules
        self._assignment = Assignment(0, NO_EPOCH, now_ms, AppendOrigin.CLIENT)
        self._slices = self._validate(records)
        self.is_done = False
        self.result: CheckedSet | None = None

    def advance(self) -> None:
        """Do the next slice. Raises what `validate_and_assign` raises; then the checks have ended."""
        assert not self.is_done, "advanced after the end"
        self.is_done = True
        for _ in self._slices:
            self.is_done = False
            return

    def run(self) -> CheckedSet | None:
        """Do all slices. Returns the result."""
        while not self.is_done:
            self.advance()
        return self.result

    def _validate(self, records: Buffer) -> Slices:
        if not check_produced(records, self._rules, is_client=True):
            return
        yield
        buffer = records if isinstance(records, bytearray) else bytearray(records)
        batches, source = batches_of(buffer)
        target = self._rules.target_for(source)
        if batches[0].magic < CURRENT_MAGIC:
            self.result = yield from self._convert(buffer, batches, target)
            return
        (batch,) = batches
        check_batch(batch, self._rules, AppendOrigin.CLIENT)
        is_dense, greatest = yield from self._check(batch)
        if source is target and is_dense:
            validation = BatchValidation(buffer, batch, self._rules, self._assignment)
            self.result = validation.finish_in_place(greatest, target)
        else:
            self.result = yield from self._rebuild(batch, target)

    def _check(self, batch: RecordBatch) -> Generator[None, None, tuple[bool, int]]:
        """Check all records. Returns whether their offsets have no gap, and their greatest timestamp or -1."""
        checks = RecordChecks(batch, self._rules, self._assignment.now_ms)
        is_dense, greatest = True, NO_TIMESTAMP

        def note(offset_delta: int, timestamp: int, key: bytes | None) -> None:
            nonlocal is_dense, greatest
            if offset_delta != checks.count:
                is_dense = False
            if timestamp > greatest:
                greatest = timestamp
            checks.check(key, timestamp)

        def check(records: Iterator[Record]) -> None:
            for record in records:
                note(record.offset - batch.base_offset, record.timestamp, record.key)

        def check_large(stream: RecordStream) -> Slices:
            large: LargeRecord = yield from stream.walk_large()
            timestamp = _timestamp_of(batch, large.timestamp_delta)
            note(large.offset_delta, timestamp, _SOME_KEY if large.has_key else None)

        yield from _each_record(batch, check, check_large)
        checks.finish()
        return is_dense, greatest

    def _rebuild(self, batch: RecordBatch, target: Compression) -> Generator[None, None, CheckedSet]:
        """Build a batch again whose records were checked."""
        built = StreamedBatch(batch_fields(batch, self._rules, target, self._assignment))

        def append(records: Iterator[Record]) -> None:
            for record in records:
                built.append(record)
            check_batch_size(built.size_bytes, self._rules)

        def append_large(stream: RecordStream) -> Slices:
            timestamp_delta, _ = yield from stream.begin_large()
            built.begin_large(_timestamp_of(batch, timestamp_delta), stream.large_bytes_left)
            for piece in stream.left_of_large():
                built.append_piece(piece)
                check_batch_size(built.size_bytes, self._rules)
                yield

        yield from _each_record(batch, append, append_large)
        return self._finish(built, batch)

    def _convert(
        self, buffer: bytearray, batches: Sequence[RecordBatch], target: Compression
    ) -> Generator[None, None, CheckedSet]:
        """Check the messages of magic 0 and 1, then build one batch of them."""
        validation = SetValidation(buffer, batches, self._rules, self._assignment)
        # The sizes of key and value of each large message, in order.
        sizes: deque[tuple[int, int]] = deque()
        # Of all batches: an uncompressed message is a batch of its own.
        checked = 0
        for batch in batches:
            checks = validation.begin(batch)
            for record in validation.sliced_records_of(batch, checks):
                if record is None:
                    yield
                    continue
                checks.check(record.key, record.timestamp)
                if isinstance(record, CutRecord):
                    sizes.append((record.key_size, record.value_size))
                checked += 1
                if checked % _MESSAGES_IN_A_SLICE == 0:
                    yield
            checks.finish()
        built = StreamedBatch(batch_fields(batches[0], self._rules, target, self._assignment))
        for batch in batches:
            if sizes:
                yield from self._append_wrapper(built, batch, sizes)
                continue
            for message in sliced_messages(batch.tobytes(), batch.position, HEADS_HELD):
                if message is not None:
                    built.append(message.record())
                if message is None or built.record_count % _MESSAGES_IN_A_SLICE == 0:
                    check_batch_size(built.size_bytes, self._rules)
                    yield
        return self._finish(built, batches[0])

    def _append_wrapper(
        self, built: StreamedBatch, batch: RecordBatch, sizes: deque[tuple[int, int]]
    ) -> Slices:
        """Append the messages of a wrapper in which some are large: these are passed on piece by piece."""
        is_log_append = batch.timestamp_type is TimestampType.LOG_APPEND

        def append_large(stream: MessageStream) -> Slices:
            *_, timestamp = yield from stream.begin_large()
            if timestamp is None or is_log_append:
                timestamp = batch.max_timestamp
            key_size, value_size = sizes.popleft()
            fields = [(encode_varint(size), size) for size in (key_size, value_size)]
            # After them the number of headers.
            built.begin_large(timestamp, sum(len(prefix) + max(size, 0) for prefix, size in fields) + 1)
            for what, (prefix, size) in zip(("key", "value"), fields, strict=True):
                yield from stream.take_size(what)
                built.append_piece(prefix)
                for piece in stream.take_pieces(size):
                    built.append_piece(piece)
                    check_batch_size(built.size_bytes, self._rules)
                    yield
            built.append_piece(b"\x00")
            yield from stream.take_rest()

        wrapper = Wrapper(batch.tobytes(), batch.position)
        end = yield from wrapper.find_end()
        for message in wrapper.messages(end, append_large):
            if message is None:
                check_batch_size(built.size_bytes, self._rules)
                yield
            else:
                built.append(message.record())

    def _finish(self, built: StreamedBatch, first: RecordBatch) -> CheckedSet:
        if not built.record_count:
            raise InvalidRecord("the batch contains no records")
        content, last_offset = bytearray(built.build()), built.record_count - 1
        check_batch_size(len(content), self._rules)
        is_log_append, now_ms = self._rules.is_log_append, self._assignment.now_ms
        max_timestamp = now_ms if is_log_append else built.max_timestamp
        return stamped_set(
            content,
            first_offset=0,
            last_offset=last_offset,
            max_timestamp=max_timestamp,
            offset_of_max_timestamp=NO_OFFSET if max_timestamp == NO_TIMESTAMP else last_offset,
            log_append_time_ms=now_ms if is_log_append else NO_TIMESTAMP,
            leader_epoch=NO_EPOCH,
            has_producer_id=first.has_producer_id,
        )


def _timestamp_of(batch: RecordBatch, delta: int) -> int:
    if batch.timestamp_type is TimestampType.LOG_APPEND:
        return batch.max_timestamp
    return wrap_int64(batch.base_timestamp + delta)


def _each_record(
    batch: RecordBatch,
    take: Callable[[Iterator[Record]], None],
    take_large: Callable[[RecordStream], Slices],
) -> Slices:
    """Passes on all records in order: small ones by `take`, each large one by `take_large`. Raises InvalidRecord."""
    with memoryview(batch.buffer) as view, view[batch.start + HEADER_SIZE :] as payload:
        stream, left = RecordStream(unpack(batch.compression, payload)), batch.record_count
        while left:
            chunk, count = stream.take_whole(left)
            if count:
                take(_decoded(batch, chunk, count))
                left -= count
            elif stream.begins_large():
                yield from take_large(stream)
                left -= 1
            elif not stream.read_more():
                raise InvalidRecord("the records end early")
            yield
        while stream.is_at_end and stream.read_more():
            yield
        if not stream.is_at_end:
            raise InvalidRecord(f"bytes remain after {batch.record_count} records")


def _decoded(batch: RecordBatch, chunk: bytes, count: int) -> Iterator[Record]:
    is_log_append = batch.timestamp_type is TimestampType.LOG_APPEND
    return decode_records(
        chunk,
        count,
        base_offset=batch.base_offset,
        base_timestamp=batch.base_timestamp,
        log_append_time_ms=batch.max_timestamp if is_log_append else None,
    )
