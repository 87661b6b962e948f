"""The mistakes that `tools/mutants.py` plants, each a protection taken away, with who is expected to notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """`old` stands exactly once in the file `path`."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """`tests` are pytest's ids, `scenarios` names of files below `scenarios/` with `@` and a seed."""

    name: str
    rule: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()


STORAGE, CLUSTER = "tests/storage/", "tests/cluster/"

MISTAKES: tuple[Mistake, ...] = (
    # recovery
    Mistake(
        name="recovery-skips-crc",
        rule="LS10: recovery checks the CRC of every batch",
        edits=(
            Edit(
                path="storage/file_records.py",
                old="                elif checksum(buffer[at + CRC_COVERS_FROM : batch_end]) != header[4]:\n"
                "                    RecordBatch(buffer, at, batch_end - at, position + at)"
                ".check_valid(self._path)\n",
                new="",
            ),
        ),
        tests=(STORAGE + "test_segment_recovery.py::test_ls10_a_flipped_byte_cuts_from_its_batch_on",),
        scenarios=("torn-tail-power-loss@7",),
    ),
    Mistake(
        name="recovery-keeps-index-entries",
        rule="LS10: no index entry points beyond the cut",
        edits=(
            Edit(
                path="storage/segment_recovery.py",
                old="    segment.reset_indexes()\n    walk = _Walk(",
                new="    walk = _Walk(",
            ),
            Edit(
                path="storage/segment_recovery.py",
                old="    walk.write_indexes()\n    position",
                new="    if segment.offset_index.entries == 0:\n        walk.write_indexes()\n    position",
            ),
        ),
        tests=(
            STORAGE + "test_segment_recovery.py::test_ls10_no_index_entry_points_beyond_the_cut",
            STORAGE + "test_segment_recovery.py::test_ls10_garbage_in_the_indexes_does_not_matter",
        ),
    ),
    Mistake(
        name="clean-mark-stays",
        rule="LL1: the mark of a clean stop is gone before the logs are loaded (KAFKA-10471)",
        edits=(
            Edit(
                path="storage/log_manager.py",
                old="self.was_clean = clean_file.delete()",
                new="self.was_clean = clean_file.exists()",
            ),
        ),
        tests=(
            STORAGE + "test_protections.py::test_ll1_the_mark_of_a_clean_stop_serves_one_start",
            "tests/sim/test_cluster_protections.py"
            "::test_a_crash_after_a_clean_stop_and_a_start_is_recovered_from",
        ),
    ),
    # truncation
    Mistake(
        name="truncation-keeps-batch",
        rule="LS13: truncate_to removes the batch that holds the offset, whole",
        edits=(
            Edit(
                path="storage/segment.py",
                old="0 if found is None else self.cut_records(found.position)",
                new="0 if found is None else self.cut_records(found.position + found.size_bytes)",
            ),
        ),
        tests=(
            STORAGE + "test_segment.py::test_ls13_the_whole_batch_that_holds_the_offset_goes",
            STORAGE + "test_log_truncate.py"
            "::test_rt10_inside_a_batch_the_whole_batch_goes_and_the_end_is_the_offset_asked_for",
        ),
        scenarios=("divergence-truncation@7",),
    ),
    Mistake(
        name="truncation-keeps-index-entries",
        rule="LS13: the indexes lose what lies at or above the offset",
        edits=(
            Edit(
                path="storage/segment_indexes.py",
                old="        self.offset.truncate_to(offset)\n        self.time.truncate_to(offset)\n",
                new="",
            ),
        ),
        tests=(STORAGE + "test_segment.py::test_ls13_truncation_keeps_what_lies_below",),
    ),
    Mistake(
        name="truncation-keeps-epochs",
        rule="RT9: epochs that began behind the truncation are forgotten",
        edits=(
            Edit(
                path="storage/log_truncate.py",
                old="        removed = self._local.truncate_to(offset, self._now_ms)\n"
                "        self._delete_snapshots_of(removed)\n"
                "        self.leader_epochs.truncate_from_end(offset)\n",
                new="        removed = self._local.truncate_to(offset, self._now_ms)\n"
                "        self._delete_snapshots_of(removed)\n",
            ),
        ),
        tests=(
            STORAGE + "test_log_truncate.py::test_rt9_epochs_that_began_behind_it_are_forgotten_on_disk_too",
        ),
    ),
    Mistake(
        name="truncate-to-high-watermark",
        rule="EPC-7: a follower truncates by epoch, not to its high watermark (KIP-101)",
        edits=(
            Edit(
                path="cluster/replica/truncation.py",
                old="return log.high_watermark if log.latest_epoch is None else None",
                new="return log.high_watermark",
            ),
            Edit(
                path="cluster/replica/truncation.py",
                old="return NO_EPOCH if log.latest_epoch is None else log.latest_epoch",
                new="return NO_EPOCH",
            ),
        ),
        tests=(
            CLUSTER
            + "test_follower_truncation.py::test_follower_truncates_by_epoch_not_to_its_high_watermark",
        ),
        scenarios=("leader-crash@7",),
    ),
    # what a leader counts
    Mistake(
        name="fetch-without-epoch-check",
        rule="LED-1: leader and follower live in one leader epoch (KIP-320)",
        edits=(
            Edit(
                path="cluster/replica/fetch.py",
                old="        replica.check_leader_epoch(asked.current_leader_epoch)"
                "  # LED-1, before everything else\n",
                new="",
            ),
        ),
        tests=(
            CLUSTER + "test_leader_fetch.py::test_led1_older_leader_epoch_is_fenced",
            CLUSTER + "test_leader_fetch.py::test_led6_a_refused_fetch_moves_nothing",
        ),
        scenarios=("stale-leader-epoch@7",),
    ),
    Mistake(
        name="progress-of-an-older-epoch",
        rule="ISR-8: a re-elected leader forgets what its followers had in an older epoch",
        edits=(
            Edit(
                path="cluster/replica/roles.py",
                old="        return Leader(\n            broker_id=self._context.broker_id,\n",
                new="        leader = Leader(\n            broker_id=self._context.broker_id,\n",
            ),
            Edit(
                path="cluster/replica/roles.py",
                old="            now_ms=now_ms,\n        )\n\n    def become_follower(",
                new="            now_ms=now_ms,\n        )\n"
                "        if replica.leader is not None:\n"
                "            leader.followers.update(replica.leader.followers)\n"
                "        return leader\n\n    def become_follower(",
            ),
        ),
        tests=(
            CLUSTER + "test_leader_high_watermark.py"
            "::test_isr8_a_re_elected_leader_forgets_what_followers_had_in_an_older_epoch",
        ),
    ),
    Mistake(
        name="progress-before-divergence",
        rule="LED-6: a fetch that diverges promises nothing (KAFKA-13141)",
        edits=(
            Edit(
                path="cluster/replica/fetch.py",
                old="return answer.error is ErrorCode.NONE and answer.diverging is None",
                new="return answer.error is ErrorCode.NONE",
            ),
        ),
        tests=(CLUSTER + "test_leader_fetch.py::test_led6_a_diverging_fetch_moves_nothing",),
    ),
    Mistake(
        name="progress-out-of-range",
        rule="LED-6: an offset that was refused promises nothing (KAFKA-8400)",
        edits=(
            Edit(
                path="cluster/replica/fetch.py",
                old="return answer.error is ErrorCode.NONE and answer.diverging is None",
                new="return answer.diverging is None",
            ),
        ),
        tests=(CLUSTER + "test_leader_fetch.py::test_led6_a_refused_fetch_moves_nothing",),
    ),
    Mistake(
        name="join-before-epoch-start",
        rule="ISR-3: a joiner has reached the start of the leader's epoch (KAFKA-7128)",
        edits=(
            Edit(
                path="cluster/replica/leader.py",
                old="max(self.log.high_watermark, self.epoch_start_offset)",
                new="self.log.high_watermark",
            ),
        ),
        tests=(CLUSTER + "test_isr_rules.py::test_follower_joins_isr_only_after_reaching_the_leader_epoch",),
    ),
    Mistake(
        name="high-watermark-ignores-joiner",
        rule="HWM-2: the high watermark waits for the maximal ISR (KIP-497)",
        edits=(
            Edit(
                path="cluster/replica/leader.py",
                old="return maximal_isr(self.isr)\n\n    def should_wait_for",
                new="return committed_isr(self.isr).isr\n\n    def should_wait_for",
            ),
        ),
        tests=(CLUSTER + "test_leader_high_watermark.py::test_high_watermark_waits_for_a_joining_follower",),
    ),
    # what is promised
    Mistake(
        name="ack-before-high-watermark",
        rule="PRO-1: acks=all is answered when the high watermark has passed the record",
        edits=(
            Edit(
                path="cluster/replica/produce.py",
                old="return leader.has_reached(required_offset)",
                new="return leader.own_end.offset >= required_offset",
            ),
        ),
        tests=(
            CLUSTER + "test_leader_produce.py"
            "::test_pro1_acks_all_is_answered_when_the_high_watermark_has_passed_the_last_record",
        ),
        scenarios=("leader-crash@7",),
    ),
    Mistake(
        name="flush-promise-broken",
        rule="with flush.messages=1 a leader counts what is flushed of its own log",
        edits=(
            Edit(
                path="cluster/replica/leader.py",
                old="if promises_flush(self.log) and self.log.recovery_point < self.log.log_end_offset:",
                new="if False:",
            ),
        ),
        tests=(
            CLUSTER + "test_leader_high_watermark.py::test_a_flush_promise_holds_the_leaders_own_end_back",
        ),
    ),
    Mistake(
        name="consumer-reads-to-log-end",
        rule="CON-1: nothing above the high watermark is served",
        edits=(
            Edit(
                path="cluster/replica/fetch.py",
                old="isolation=Isolation.HIGH_WATERMARK, min_one_message=is_first",
                new="isolation=Isolation.LOG_END, min_one_message=is_first",
            ),
        ),
        tests=(CLUSTER + "test_leader_consumers.py::test_con1_nothing_above_the_high_watermark_is_served",),
        scenarios=("cut-leader-acks-1@7",),
    ),
    # producers
    Mistake(
        name="retry-not-recognised",
        rule="AP12: a retry of one of the last five batches writes nothing",
        edits=(
            Edit(
                path="storage/producer_state.py",
                old="if is_client and (duplicate := self.find_duplicate(batch)):",
                new="if is_client and (duplicate := None):",
            ),
        ),
        tests=(
            STORAGE + "test_log_append.py"
            "::test_ap12_a_repeat_of_the_last_five_batches_gives_the_old_offsets_and_writes_nothing",
            CLUSTER + "test_leader_produce.py::test_pro7_a_retry_gets_the_offsets_of_the_first_time",
        ),
    ),
    Mistake(
        name="producer-state-before-bytes",
        rule="PS9: what an append made of a producer is taken over once the bytes are written",
        edits=(
            Edit(
                path="storage/producer_state.py",
                old="            if completed is not None:\n"
                "                prepared.completed.append(completed)\n            if is_transactional:\n",
                new="            self.update(info)\n            if completed is not None:\n"
                "                prepared.completed.append(completed)\n            if is_transactional:\n",
            ),
        ),
        tests=(
            STORAGE + "test_protections.py"
            "::test_ps9_a_set_that_is_refused_in_its_middle_leaves_no_trace_of_any_producer",
        ),
    ),
    Mistake(
        name="producers-forgotten-on-reload",
        rule="a retry of one of the last five batches is known after a restart and a truncation too",
        edits=(
            Edit(
                path="storage/producer_rebuild.py",
                old="    if recalls_batches:\n",
                new="    if False:\n",
            ),
        ),
        tests=(
            STORAGE + "test_producer_recall.py"
            "::test_each_of_the_last_five_batches_is_known_after_each_of_two_restarts",
            STORAGE + "test_producer_recall.py"
            "::test_batches_are_known_after_a_truncation_and_those_that_went_are_not",
        ),
    ),
    # followers and controller
    Mistake(
        name="follower-takes-newer-epochs",
        rule="FET-9: batches of a later epoch than the fetch was sent in are skipped (KAFKA-18723)",
        edits=(
            Edit(
                path="storage/log_append.py",
                old="            if epoch > leader_epoch:\n",
                new="            if False:\n",
            ),
        ),
        tests=(
            STORAGE + "test_log_append.py"
            "::test_fet9_batches_of_a_later_epoch_than_the_fetch_was_sent_in_are_skipped",
            CLUSTER
            + "test_follower_fetch.py::test_fet9_batches_of_a_later_epoch_than_was_asked_in_are_skipped",
        ),
    ),
    Mistake(
        name="stale-answer-used",
        rule="FET-4: an answer to what was asked in another epoch is dropped (KAFKA-7786)",
        edits=(
            Edit(
                path="cluster/replica/fetcher.py",
                old="return follower is not None and follower.is_ready(now_ms) and is_same_state",
                new="return follower is not None and follower.is_ready(now_ms)",
            ),
        ),
        tests=(
            CLUSTER + "test_follower_fetch.py::test_fet4_an_answer_of_an_older_leader_epoch_is_dropped",
            CLUSTER + "test_follower_fetch.py::test_fet4_a_late_diverging_answer_truncates_nothing",
        ),
    ),
    Mistake(
        name="decision-told-before-disk",
        rule="CTL-3: what may yet be lost is told to nobody",
        edits=(
            Edit(
                path="cluster/controller/controller.py",
                old="        return end_offset <= self.log.committed_offset\n",
                new="        self.log.commit(end_offset)\n        return True\n",
            ),
        ),
        tests=(
            "tests/sim/test_run_lives.py::test_what_the_controller_lost_before_it_was_on_disk_never_counts",
        ),
    ),
    # rules one step to the side
    Mistake(
        name="iteration-drops-the-last-batch",
        rule="FR8d: a batch that ends with the file is whole",
        edits=(
            Edit(
                path="storage/file_records.py",
                old="if size_bytes > limit - position:\n",
                new="if size_bytes >= limit - position:\n",
            ),
        ),
        tests=(STORAGE + "test_file_records_edges.py::test_fr8d_a_batch_that_ends_with_the_file_is_whole",),
    ),
    Mistake(
        name="checksum-of-a-cut-header",
        rule="FR11: a batch of magic 2 has 61 bytes at least",
        edits=(
            Edit(
                path="storage/batch.py",
                old=("        if self.size_bytes < HEADER_SIZE:\n            return False\n"),
                new="",
            ),
        ),
        tests=(
            STORAGE
            + "test_file_records_edges.py::test_fr11_a_batch_below_61_bytes_is_unsound_whatever_its_checksum_says",
        ),
    ),
    Mistake(
        name="transaction-index-never-synced",
        rule="IX31: a flush syncs the transaction index",
        edits=(
            Edit(
                path="storage/transaction_index.py",
                old=("        if self._file is not None:\n            self._file.sync()\n"),
                new="        return\n",
            ),
        ),
        tests=(STORAGE + "test_index_edges.py::test_ix31_a_flush_syncs_what_is_open_and_opens_nothing",),
    ),
    Mistake(
        name="index-entry-at-the-interval",
        rule="LS1: an entry is due strictly above index.interval.bytes",
        edits=(
            Edit(
                path="storage/segment.py",
                old="due = bisect_right(starts, counted_from + interval, noted)",
                new="due = bisect_right(starts, counted_from + interval - 1, noted)",
            ),
        ),
        tests=(
            STORAGE + "test_segment_edges.py::test_ls1_the_interval_runs_on_from_batch_to_batch_within_a_set",
        ),
    ),
    Mistake(
        name="jitter-forgotten",
        rule="LS4: a segment rolls earlier by its jitter",
        edits=(
            Edit(
                path="storage/segment.py",
                old="if waited_ms > max_segment_ms - self._roll_jitter_ms:",
                new="if waited_ms > max_segment_ms:",
            ),
        ),
        tests=(STORAGE + "test_segment_edges.py::test_ls4_the_jitter_makes_the_time_shorter",),
    ),
    Mistake(
        name="truncation-not-synced",
        rule="LS13: what a truncation cut is cut on the disk",
        edits=(
            Edit(
                path="storage/segment.py",
                old=("        if removed_bytes > 0:\n            self.records.flush()\n"),
                new="",
            ),
        ),
        tests=(STORAGE + "test_segment_edges.py::test_ls13_the_cut_is_on_disk",),
    ),
    Mistake(
        name="moved-files-stay",
        rule="LS22: a deleted segment is found in the directory that took its live name",
        edits=(Edit(path="storage/segment.py", old="if moved is not None:", new="if False:"),),
        tests=(
            STORAGE
            + "test_segment_end_edges.py::test_ls22_files_of_a_future_directory_are_found_under_its_live_name",
        ),
    ),
    Mistake(
        name="equal-offsets-in-order",
        rule="AP4: each batch of a follower's set ends above the one before",
        edits=(
            Edit(
                path="storage/log_append.py",
                old="all(map(lt, last_offsets, last_offsets[1:]))",
                new="all(map(int.__le__, last_offsets, last_offsets[1:]))",
            ),
        ),
        tests=(STORAGE + "test_log_append_edges.py::test_ap4_equal_last_offsets_are_out_of_order",),
    ),
    Mistake(
        name="recovery-point-goes-back",
        rule="FL1: a flush below the recovery point leaves it",
        edits=(
            Edit(
                path="storage/log_flush.py",
                old="self._local.recovery_point = max(self._local.recovery_point, reached)",
                new="self._local.recovery_point = reached",
            ),
        ),
        tests=(
            STORAGE
            + "test_log_append_edges.py::test_fl1_the_recovery_point_moves_to_the_offset_and_never_back",
        ),
    ),
    Mistake(
        name="retention-spares-the-log-start",
        rule="RT4: what lies below the log start goes whatever cleanup.policy says",
        edits=(
            Edit(
                path="storage/log_retention.py",
                old="deleted = self._delete_while(self._is_below_log_start)",
                new="deleted = 0",
            ),
        ),
        tests=(
            STORAGE
            + "test_log_marks_edges.py::test_rt4_what_lies_below_the_log_start_goes_whatever_the_policy",
        ),
    ),
    Mistake(
        name="last-segment-below-log-start",
        rule="RT7: the last segment never goes for the log start",
        edits=(
            Edit(
                path="storage/log_retention.py",
                old="following is not None and following.base_offset <= self.log_start_offset",
                new="following is None or following.base_offset <= self.log_start_offset",
            ),
        ),
        tests=(STORAGE + "test_log_marks_edges.py::test_rt7_the_last_segment_never_goes_for_the_log_start",),
    ),
)
