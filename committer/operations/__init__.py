"""What an operator does about jobs at a destination: see them, finish them, clean up.

Each call opens the store once.
"""

from committer.operations.clean_job import KEPT
from committer.operations.cleanup import (
    CleanupReport,
    age_in_seconds,
    cleanup,
    forget_outcome,
    plan_cleanup,
    refuse_to_clean,
)
from committer.operations.listing import JobInfo, list_jobs
from committer.operations.recovery import check_recovery, recover
from committer.operations.settling import check_settlement, settle
from committer.paths import Destination

__all__ = [
    "KEPT",
    "CleanupReport",
    "Destination",
    "JobInfo",
    "age_in_seconds",
    "check_recovery",
    "check_settlement",
    "cleanup",
    "forget_outcome",
    "list_jobs",
    "plan_cleanup",
    "recover",
    "refuse_to_clean",
    "settle",
]
