"""Kafka's names of the mistakes in the catalogue: its issues, and the proposals that ruled them out.

A bug that is not named here is one of this project's own.
"""

from __future__ import annotations

from collections.abc import Mapping

TICKETS: Mapping[str, str] = {
    "recovery-skipped": "KAFKA-673",
    "clean-mark-survives": "KAFKA-10471",
    "epoch-lookup-without-floor": "KAFKA-6361",
    "epochs-without-records-stay": "KAFKA-10706",
    "epoch-file-not-synced": "KAFKA-16541",
    "producer-snapshot-not-synced": "KAFKA-9892",
    "retention-takes-uncommitted": "KAFKA-5634",
    "compaction-takes-uncommitted": "KAFKA-13194",
    "compaction-forgets-producers": "KAFKA-5490",
    "log-goes-on-after-disk-error": "KAFKA-10778",
    "truncate-to-high-watermark": "KAFKA-1211",
    "truncation-generation-1": "KAFKA-1211",
    "truncation-generation-2": "KAFKA-6361",
    "truncation-generation-3": "KAFKA-6880",
    "fetch-without-epoch-check": "KAFKA-6880",
    "append-outlives-leadership": "KAFKA-1148",
    "join-before-epoch-start": "KAFKA-7128",
    "shrink-before-accepted": "KIP-497",
    "leader-commits-below-min-isr": "KAFKA-15583",
    "leader-takes-silence-for-refusal": "KIP-497",
    "proposal-follows-the-joiner": "KIP-903",
    "leader-notes-no-epoch-start": "KAFKA-7415",
    "leader-answers-after-its-epoch": "KAFKA-1148",
    "leader-counts-diverging-fetch": "KAFKA-13141",
    "leader-counts-refused-fetch": "KAFKA-8400",
    "leader-answers-latest-too-early": "KIP-207",
    "leader-tells-of-lacking-epochs-only": "KIP-595",
    "leader-ignores-lacking-epochs": "KIP-279",
    "leader-withdraws-superseded": "KIP-497",
    "consumer-keeps-epoch-after-cut": "KIP-320",
    "controller-elects-unreadable": "KIP-858",
    "leader-accepts-any-sequence": "KIP-98",
    "follower-takes-high-watermark-first": "KAFKA-14704",
    "follower-starts-again-where-logs-differ": "KAFKA-2143",
    "follower-uses-late-answers": "KAFKA-7786",
    "half-a-change-applies": "KAFKA-12376",
    "refused-change-stays-pending": "KAFKA-13100",
    "controller-keeps-fenced-members": "KIP-841",
    "controller-admits-any-member": "KIP-903",
    "controller-moves-shutdown-offset": "KAFKA-14292",
    "producer-believes-old-news": "KIP-360",
    "without-checks-of-brokers": "KAFKA-7235",
    "without-checks-of-followers": "KAFKA-15221",
    "without-check-topic-id": "KIP-516",
    "without-check-known-topic-id": "KIP-516",
    "without-check-proposal-not-ahead": "KAFKA-14154",
    "without-is-same-life": "KIP-903",
    "without-is-same-topic": "KIP-516",
}
