"""The catalogue of points, each with what has happened once a run has reached it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

_ELECTIONS = {
    "elected-clean": "a leader was elected from the in-sync set after another one",
    "elected-unclean": "a leader was elected from outside the in-sync set",
    "elected-behind": "a leader was elected whose log is shorter than that of another replica",
    "elected-alone": "a leader was elected as the only replica in sync",
    "elected-again": "a broker was elected that had led the epoch before",
    "elected-none": "a partition lost its leader and no broker could lead",
    "isr-shrank": "an in-sync set got smaller",
    "isr-grew": "an in-sync set got larger",
    "isr-below-minimum": "an in-sync set was smaller than min.insync.replicas",
    "isr-of-leader": "an in-sync set shrank to the leader alone",
    "joiner-awaited": "a leader waited for a replica whose place in the in-sync set was not committed yet",
}
_ROLES = {
    "late-leader": "a broker began to lead an epoch that was over already",
    "late-follower": "a broker began to follow in an epoch that was over already",
    "empty-epoch": "a leader began after an epoch in which it had got no record",
    "late-append": "a replaced leader appended records that clients sent it",
    "late-commit": "a replaced leader advanced its high watermark",
    "late-acknowledgement": "a replaced leader acknowledged records",
    "late-answer": "a replaced leader sent records to a consumer",
}
_LOGS = {
    "truncated": "a follower truncated its log",
    "truncated-batches": "a truncation took two batches or more",
    "truncated-epochs": "a truncation took records of two epochs or more",
    "truncated-whole": "a truncation took every record of a log",
    "truncated-again": "a follower truncated twice in one epoch",
    "truncated-into-batch": "a truncation took more than it was asked for, because a batch is cut whole",
    "copied-epochs": "a follower appended batches of two epochs at once",
    "copied-from-start": "a follower dropped its log and began again where its leader's begins",
    "retention": "retention deleted segments",
    "compaction": "a log was compacted",
    "set-aside": "a replica that the controller no longer names was set aside",
    "removed": "the log of a deleted topic was removed",
}
_CRASHES = {
    "leader-died": "a leader's process died",
    "in-sync-died": "every in-sync replica was down at once",
    "died-behind": "an in-sync replica died while its log was behind its leader's",
    "died-early": "a broker died again before it had a role",
    "power-lost-batches": "a power loss took batches that were not synced",
    "power-lost-committed": "a power loss took committed records from a replica",
    "power-lost-all": "a power loss took every record of a log",
    "torn-tail": "recovery cut a torn tail off a log",
    "died-cleaning": "a broker died with the files of an unfinished compaction",
    "died-deleting": "a broker died with files that were still to be deleted",
    "clean-start": "a broker started again after a clean stop",
    "unclean-start": "a broker started again after an unclean stop",
    "directory-failed": "a log directory failed",
    "replica-failed": "a follower gave up a log that had failed",
    "replica-offline": "a replica went offline with its log",
    "broker-gave-up": "a broker stopped by itself, because no directory was left",
    "controller-died": "the controller's process died",
    "controller-lost-power": "the controller's machine lost power",
}
_PROMISES = {
    "minimum-acknowledged": "records were acknowledged with the least in-sync set that is allowed",
    "duplicate-acknowledged": "a batch that was sent again was acknowledged at its first offsets",
    "appends-waited": "appends waited for others to copy them",
    "answer-to-nobody": "an answer came after its asker had left",
    "excused-disks": "records were excused because the disks of all in-sync replicas lost them",
    "excused-unclean": "records were excused because of an unclean election",
    "send-refused": "a producer learned that a record was refused",
    "send-unknown": "a producer never learned what became of a record",
    "read-again": "a consumer read an offset again after later ones",
    "written-twice": "a record of a producer that is not idempotent was written twice",
    "packet-lost": "the network lost a packet",
    "frame-unreadable": "a bit of a frame flipped, and it was no message any more",
    "frame-unchecked": "a bit of a frame flipped that no checksum covers",
    "packet-selected": "a link kept back or lost packets of one method, and carried others",
}
_ANSWERS = {
    "fetch-diverged": "a leader told a follower where their logs part",
    "fetch-fenced": "a follower's fetch was fenced for its old epoch",
    "fetch-unknown-epoch": "a leader did not know the epoch of a follower's fetch yet",
    "fetch-no-leader": "a follower fetched from a broker that does not lead",
    "fetch-out-of-range": "a follower's fetch was outside of its leader's log",
    "fetch-unknown-topic": "a follower fetched a topic that its leader does not have",
    "fetch-failed-disk": "a follower's fetch met a failed disk",
    "consumer-fenced": "a consumer's fetch was fenced for its old epoch",
    "consumer-unknown-epoch": "a broker did not know the epoch of a consumer's fetch yet",
    "consumer-no-leader": "a consumer fetched from a broker that does not lead",
    "consumer-out-of-range": "a consumer's fetch was outside of the log, as after retention",
    "consumer-diverged": "a consumer was told that what it had read is no longer there",
    "consumer-unknown-topic": "a consumer fetched a topic that is not there",
    "produce-no-leader": "a record was sent to a broker that does not lead",
    "produce-too-few": "a record was refused because too few replicas were in sync",
    "produce-timed-out": "a record was not copied in time",
    "produce-out-of-order": "a batch came before the one that precedes it",
    "produce-unknown-topic": "a record was sent to a topic that is not there",
    "produce-failed-disk": "a record met a failed disk",
    "proposal-outdated": "the controller refused an in-sync set that builds on an old one",
    "proposal-fenced": "the controller refused an in-sync set of a replaced leader",
    "proposal-ineligible": "the controller refused an in-sync set with a replica that may not join",
    "proposal-of-old-life": "the controller refused an in-sync set of a broker's earlier life",
    "heartbeat-of-old-life": "the controller refused the heartbeat of a broker's earlier life",
    "registered-twice": "the controller refused to register a broker whose earlier life it still counts",
    "leave-granted": "the controller let a broker stop after it had moved its leaders",
    "broker-fenced": "the controller fenced a broker",
    "topic-deleted": "a topic was deleted",
    "topic-configured": "the properties of a topic changed",
    "topic-exists": "a topic was created that exists already",
}
POINTS: Mapping[str, str] = _ELECTIONS | _ROLES | _LOGS | _CRASHES | _PROMISES | _ANSWERS


@final
class Reached:
    """The points that one run has reached."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def note(self, name: str) -> None:
        """Note that the run has reached a point of the catalogue, perhaps not for the first time."""
        assert name in POINTS, name
        self._names[name] = None

    def names(self) -> list[str]:
        """Returns the names in the order of the catalogue."""
        return [name for name in POINTS if name in self._names]
