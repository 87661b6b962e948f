"""The list of all checkers that watch a run."""

from __future__ import annotations

from sim.checkers.acknowledged import AcknowledgedIsCommitted, AcknowledgedIsDurable
from sim.checkers.base import Checker
from sim.checkers.committed_prefix import CommittedPrefix
from sim.checkers.divergence import DivergenceIsTold
from sim.checkers.durability import (
    CheckpointsAreOfTheLog,
    CleanStopKeepsAll,
    CutsAreDurable,
    FlushedIsDurable,
    RecoveryPointIsDurable,
)
from sim.checkers.elections import ElectedByRule
from sim.checkers.epochs_rise import EpochsOfRolesRise
from sim.checkers.fencing import OneEpochOnBothSides
from sim.checkers.ghost import Ghost
from sim.checkers.high_watermark import HighWatermarkMonotone
from sim.checkers.in_sync import InSyncHoldsCommitted
from sim.checkers.isr_members import IsrOfActiveReplicas
from sim.checkers.leader_completeness import LeaderCompleteness
from sim.checkers.log_matching import LogMatching
from sim.checkers.log_shape import LogShape
from sim.checkers.mark_order import MarksInOrder
from sim.checkers.min_in_sync import EnoughInSync
from sim.checkers.offset_answers import OffsetAnswersAreTrue
from sim.checkers.one_leader import OneLeader
from sim.checkers.partition_changes import ChangesBuildOnState
from sim.checkers.recovery import RecoveryKeepsSoundPrefix
from sim.checkers.retention import RetentionDeletesWhatItMay
from sim.checkers.roles import RolesBindTheirEpoch
from sim.checkers.serving import NoneAboveHighWatermark
from sim.checkers.truncation import NoCutBelowTruth
from sim.checkers.waiting import NoneWaitsInVain

ONLINE: tuple[type[Checker], ...] = (
    ElectedByRule,
    IsrOfActiveReplicas,
    ChangesBuildOnState,
    OneLeader,
    RolesBindTheirEpoch,
    EpochsOfRolesRise,
    MarksInOrder,
    HighWatermarkMonotone,
    LogMatching,
    CommittedPrefix,
    LeaderCompleteness,
    InSyncHoldsCommitted,
    EnoughInSync,
    AcknowledgedIsCommitted,
    AcknowledgedIsDurable,
    LogShape,
    NoCutBelowTruth,
    NoneAboveHighWatermark,
    OffsetAnswersAreTrue,
    NoneWaitsInVain,
    OneEpochOnBothSides,
    DivergenceIsTold,
    RecoveryKeepsSoundPrefix,
    RecoveryPointIsDurable,
    CutsAreDurable,
    CheckpointsAreOfTheLog,
    FlushedIsDurable,
    CleanStopKeepsAll,
    RetentionDeletesWhatItMay,
)


def all_checkers(ghost: Ghost) -> list[Checker]:
    return [kind(ghost) for kind in ONLINE]
