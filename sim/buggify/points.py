"""The catalogue of buggify points.

Each point perturbs one effect, one input or one setting at a port between the core and the world. All of them are
within what a real machine or network may do, so every correct system survives them, and no rule of a run is relaxed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

# How often a point fires that is on.
USUAL_PERCENT = 25


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A named perturbation: `what` it does and at which `port`. If it is on, it fires in `percent` of its moments."""

    name: str
    port: str
    what: str
    percent: int = USUAL_PERCENT


def _of(port: str, *points: tuple[str, int, str]) -> tuple[Point, ...]:
    return tuple([Point(name=name, port=port, percent=percent, what=what) for name, percent, what in points])


# Those that strike often in a run fire less often, so that runs still make progress.
_STEPS = _of(
    "steps",
    ("timer-late", 25, "a timer fires up to 40 ms late"),
    ("timers-together", 25, "a timer fires at the next whole 10 ms of the run, together with others"),
    ("timer-overtakes", 25, "a timer that is due overtakes the events that wait for the core"),
    ("turn-split", 25, "requests that came together reach the core in several steps"),
    ("turn-waits", 10, "an idle core waits up to 2 ms for more requests of its turn"),
    ("step-slow", 2, "a step takes up to 50 ms longer, as after a page fault"),
    ("start-slow", 50, "a process takes up to a second longer to start"),
)
_JOBS = _of(
    "jobs",
    ("job-at-once", 25, "a job is done in the moment in which it begins"),
    ("job-slow", 10, "a job takes up to 400 ms longer, before and after its work"),
    ("job-works-last", 25, "a job does its work at the end of its time"),
    ("job-done-late", 25, "the end of a job is told up to 200 ms after its work"),
    (
        "job-overtaken",
        75,
        "a job ends up to 600 ms after a replica of its broker has begun a role, is removed, or has cut its log",
    ),
    (
        "job-before-crash",
        100,
        "a process is killed, or loses power, when the job that it waits for has done its work",
    ),
)
_DISK = _of(
    "disk",
    ("call-slow", 1, "a change on the disk takes up to 20 ms longer"),
    ("sync-slow", 10, "a sync takes up to 50 ms longer"),
    ("write-back", 25, "a file becomes durable by itself after a write"),
    (
        "page-written-back",
        10,
        "a page of some file becomes durable by itself, perhaps before those in front of it",
    ),
    ("names-written-back", 25, "a directory becomes durable by itself after a change of a name"),
    ("write-in-parts", 25, "a write is two writes, of which a power loss may keep one"),
    ("read-in-parts", 10, "a read takes two calls, and the second one may fail"),
    ("leftover-file", 50, "a file beside a checkpoint is left of an earlier life, with a longer content"),
    (
        "leftover-swap",
        50,
        "a segment of a compacted log waits at a start to take its name, the last of a swap",
    ),
    (
        "snapshots-gone",
        50,
        "a log has lost its snapshots of producers at a start, or they are torn: it knows them by the log alone",
    ),
    ("few-handles", 50, "a process has up to four file handles, and gives up those that it does not use"),
)
_CLOCK = _of("clock", ("clock-coarse", 50, "the clock of a machine moves in steps of 10 ms"))
_NETWORK = _of(
    "network",
    ("packet-late", 1, "a packet takes up to 300 ms longer, and those behind it in its stream wait"),
    ("accept-late", 25, "a connection is accepted up to 500 ms late"),
    ("fetch-answer-late", 5, "what a follower fetches takes up to 100 ms longer"),
    ("append-answer-late", 10, "the answer to a producer takes up to 300 ms longer"),
    ("heartbeat-late", 25, "a heartbeat takes up to 200 ms longer"),
    ("proposal-late", 50, "a proposed in-sync set takes up to 300 ms longer to the controller"),
    ("proposal-answer-late", 50, "the answer to a proposed in-sync set takes up to 300 ms longer"),
    (
        "metadata-late",
        25,
        "metadata takes up to 300 ms longer to one broker, which replays it later than others",
    ),
    ("client-metadata-late", 25, "metadata takes up to 500 ms longer to a client"),
    ("window-small", 25, "a stream takes one frame at a time: the next one waits until it was read"),
    (
        "small-frames",
        25,
        "a stream takes one frame at a time, and waiting calls go in frames of up to 600 bytes",
    ),
    ("slow-writes", 25, "the write of a frame of a stream takes up to 30 ms, and those behind it wait"),
    ("frames-in-pieces", 50, "requests of a stream, or a unary one, go in pieces of up to 400 bytes"),
    (
        "little-is-large",
        100,
        "records of some hundred bytes go past the codec, as otherwise only large ones do",
    ),
    ("hang-up-after-answer", 1, "a connection ends without a word after an answer came"),
)
_MESSAGES = _of(
    "messages",
    ("fetch-asks-for-one-batch", 25, "a fetch asks for one byte, and so for one batch"),
    ("fetch-does-not-wait", 10, "a fetch wants its answer at once"),
    ("fetch-waits-for-more", 5, "a fetch waits its full time for more bytes than there are"),
    ("fetch-answer-cut", 25, "an answer to a fetch has the first batch of each partition only"),
    ("fetch-answer-empty", 10, "an answer to a fetch leaves out the records of a partition"),
    ("metadata-asks-for-one-batch", 25, "a broker asks for one batch of metadata"),
    (
        "append-times-out",
        5,
        "a producer wants to know after a millisecond that its records are not replicated",
    ),
    (
        "proposal-of-an-earlier-life",
        25,
        "a proposed in-sync set names a follower in the life before its present one, and is refused",
    ),
    ("heartbeat-twice", 25, "the controller gets a heartbeat again"),
    ("proposal-twice", 50, "the controller gets a proposed in-sync set again"),
    ("registration-twice", 25, "the controller gets a registration again"),
    ("allocation-twice", 50, "the controller is asked again for a block of producer ids"),
    ("heartbeat-answer-lost", 5, "the answer to a heartbeat is lost"),
    ("proposal-answer-lost", 50, "the answer to a proposed in-sync set is lost"),
    ("registration-answer-lost", 25, "the answer to a registration is lost"),
    ("allocation-answer-lost", 50, "the answer with a block of producer ids is lost"),
    ("producer-id-answer-lost", 25, "the answer with a producer's id is lost"),
    (
        "client-metadata-stale",
        25,
        "a client gets the metadata that it got before, as from a broker that lags",
    ),
)
# A node gets them beside the requests that it was meant to get, and must refuse them, but for those of a bystander.
_STRAYS = _of(
    "strays",
    ("stray-of-another-cluster", 5, "a node gets a request of a node of another cluster"),
    (
        "stray-of-another-sender",
        5,
        "a node gets a request whose header names another sender, or that has none",
    ),
    ("stray-of-another-life", 5, "a node gets a request of a process of a broker that was never registered"),
    ("stray-about-another-topic", 5, "a node gets a request about another topic of the name"),
    (
        "stray-of-another-epoch",
        5,
        "a node gets a fetch or a look-up in a leader epoch that never was",
    ),
    (
        "stray-proposal",
        100,
        "the controller gets an in-sync set of another state, of other lives or of strangers",
    ),
    ("stray-of-a-client", 25, "the controller is asked for a topic, or a change of one, that cannot be"),
    ("topic-of-a-bystander", 20, "the controller creates, alters, grows or deletes a topic that nobody uses"),
    (
        "registration-of-a-copy",
        20,
        "another process registers under the id of a broker whose session has ended, and is not heard again",
    ),
    ("question-to-the-controller", 25, "the controller is asked for metadata, as brokers are by clients"),
    (
        "question-of-offsets",
        15,
        "a leader is asked for its committed end or for a time, beside a fetch or a set",
    ),
    (
        "stray-set",
        25,
        "a leader gets a set that it must not append: damaged, of odd offsets, or without keys where it needs them",
    ),
    (
        "stray-too-large",
        5,
        "the controller is asked for a topic whose properties do not fit into a batch of its log",
    ),
)
_CLIENTS = _of(
    "clients",
    ("send-burst", 5, "a producer sends up to eight records in one moment"),
    ("send-flush", 5, "a producer asks to learn when all that it has sent has its outcome"),
    ("first-address-refuses", 60, "the first address of a client refuses it as it begins"),
    ("topic-subscribed", 50, "a consumer finds the partitions of its topic by itself"),
    ("reading-paused", 10, "a consumer pauses a partition whose fetch is on its way, for up to 300 ms"),
    ("record-ahead", 2, "a producer sends a record of a time to come, which most topics refuse"),
    ("record-behind", 25, "a producer stamps a record with a time up to two seconds before that of others"),
    ("send-lull", 1, "a producer sends nothing for up to two seconds"),
)
_SETTINGS = _of(
    "settings",
    ("eager-broker", 50, "a life of a broker repeats what failed after 10 ms"),
    ("tiny-fetches", 50, "a life of a broker fetches one batch at a time as a follower"),
    ("tiny-answers", 50, "a life of a broker answers a fetch with one batch"),
    ("tiny-metadata-fetches", 50, "a life of a broker fetches metadata batch by batch"),
    ("few-places", 50, "a life of a node takes up to three calls at a time on each stream"),
    ("few-calls", 50, "a life of a node has one or two unary calls of a method with a peer at a time"),
    ("few-waiting", 50, "a life of a broker lets four requests of a kind wait, and refuses more"),
    (
        "little-work",
        50,
        "a life of a broker checks what producers send in slices, but for the first set of a step in half of its lives",
    ),
    ("few-logs-a-step", 70, "a pass of a broker visits one log in a step"),
    (
        "few-segments-a-step",
        70,
        "a step of a broker deletes or cuts off two segments, and jobs delete logs of several",
    ),
    (
        "few-batches-a-step",
        70,
        "a step of a broker replays two batches before a truncation, and jobs write snapshots of producers",
    ),
    (
        "short-searches",
        70,
        "a step of a broker searches two batches, or one segment of unknown times, and jobs search a batch for a time",
    ),
    ("few-deadlines", 70, "a broker clears away the deadlines of answered requests after one or two of them"),
    (
        "small-compactions",
        70,
        "a compaction plans one segment at a time, reads 64 bytes, and swaps two segments",
    ),
    ("quick-heartbeats", 50, "a life of a broker sends heartbeats four times as often"),
    ("restless-tasks", 50, "retention and the expiry of producers run at once, and each 50 ms"),
    ("restless-cleaner", 50, "the cleaner looks for work each 20 ms, with buffers for a few keys"),
    ("restless-checkpoints", 50, "a life of a broker writes its checkpoints each 50 ms"),
    ("rare-checkpoints", 50, "a life of a broker writes its checkpoints each minute"),
    ("index-each-batch", 50, "a life of a broker indexes each batch, where the topic does not say how often"),
    (
        "short-index",
        25,
        "a segment ends after two or three index entries, where the topic sets no size of indexes",
    ),
    ("rolls-early", 50, "a segment ends after 200 ms, where the topic sets no age"),
    ("flushes-each", 50, "each append is flushed, where the topic does not say when"),
    ("deletes-at-once", 50, "deleted files go at once, where the topic sets no delay"),
    ("producer-ids-one-by-one", 50, "the controller hands out blocks of one producer id"),
    ("snapshots-each", 50, "the controller writes a snapshot after each change"),
    ("small-metadata-batches", 50, "the controller splits changes above 4 KiB"),
    ("no-linger", 50, "a life of a producer sends each record at once"),
    ("long-linger", 50, "a life of a producer waits 150 ms for more records of a batch"),
    ("one-record-batches", 50, "a life of a producer sends one record a batch"),
    ("short-block", 50, "a life of a producer gives records up after 250 ms without metadata of their topic"),
    ("one-in-flight", 50, "a life of a producer has one request under way"),
    ("compressing-producer", 50, "a life of a producer compresses, with a drawn codec"),
    ("short-patience", 50, "a life of a client gives a request up after 400 ms"),
    ("eager-client", 50, "a life of a client repeats what failed after 10 ms"),
    ("restless-metadata", 50, "a life of a client asks for metadata each 100 ms"),
    ("reads-few-records", 70, "a life of a consumer takes a record or two of each answer and partition"),
    ("reads-one-batch", 50, "a life of a consumer asks for one byte, and so for one batch"),
    ("reads-patiently", 50, "a life of a consumer waits its full time for more bytes than there are"),
)

POINTS: Mapping[str, Point] = {
    point.name: point
    for group in (_STEPS, _JOBS, _DISK, _CLOCK, _NETWORK, _MESSAGES, _STRAYS, _CLIENTS, _SETTINGS)
    for point in group
}
