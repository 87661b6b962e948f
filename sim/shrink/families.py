"""Rules for which failures count as the same one: a smaller run often meets one mistake at another checker.

Two failures are alike if their signatures are equal or their checkers are of one family. An error that ended a run is
alike to the same error only.
"""

from __future__ import annotations

from sim.seeds import ERROR

# Each line: checkers that report one mistake, whichever of them looks first.
FAMILIES: tuple[frozenset[str], ...] = (
    # Replicas whose logs differ, or records that are lost.
    frozenset(
        {
            "committed-prefix", "truncation", "log-matching", "leader-completeness", "replicas-agree",
            "in-sync-replicas", "min-in-sync", "high-watermark", "mark-order", "history", "client-history", "excuses",
            "log-start", "stored-as-sent",
        }
    ),
    # Records acknowledged too early, and what becomes of them.
    frozenset({"acknowledged-committed", "acknowledged-durable", "history"}),
    # Records twice, or in another order.
    frozenset(
        {
            "producer-sequences", "lone-first-batch", "second-sequence", "hopeless-retries", "log-shape", "history",
            "client-history", "append-order",
        }
    ),
    # A damaged log that a start takes as sound.
    frozenset(
        {
            "recovery", "recovery-point", "durable-cuts", "checkpoint-offsets", "flushed-durable", "clean-stop",
            "log-shape", "replicas-agree", "index-entries", "verified-logs", "failed-disks", "twin-logs", "roll-order",
            "removal-order", "readable-checkpoints", "replaced-names",
        }
    ),
    # Decisions of the controller, and who obeys them.
    frozenset(
        {
            "elections", "isr-members", "partition-changes", "refused-members", "one-leader", "roles", "epochs-rise",
            "fencing", "one-proposal", "proposal-outcomes", "follower-progress", "high-watermark-due", "proposed-lives",
            "proposed-joiners", "late-joiners", "proposed-leavers", "high-watermark-early", "late-proposals",
        }
    ),
    # What a compaction takes, and what it leaves.
    frozenset({"compaction", "compaction-range"}),
    # Something that should have happened by now.
    frozenset(
        {
            "convergence", "canaries", "unanswered-calls", "fail-over", "waits-in-vain", "parked-fetches",
            "orderly-stops", "blind-retries", "call-places", "fetch-waits", "hasty-followers", "hasty-brokers",
            "idle-clients", "idle-brokers", "fetch-order", "retention-due", "compaction-due", "snapshot-due",
            "flush-due", "standing-timers", "call-limits",
        }
    ),
)  # fmt: skip


def checker_of(signature: str) -> str:
    return signature.partition(":")[0]


def are_alike(first: str, second: str) -> bool:
    """Whether two signatures of `sim.swarm.groups` count as the same failure; an empty one is no failure."""
    if not first or not second:
        return False
    checkers = {checker_of(first), checker_of(second)}
    if ERROR in checkers:
        return first == second
    return len(checkers) == 1 or any(checkers <= family for family in FAMILIES)
