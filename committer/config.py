"""CommitterConfig: every choice of a commit, frozen, and where each value came from."""

from __future__ import annotations

from typing import Literal

import msgspec


class CommitterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job does where it has a choice.

    Attributes:
        existing_target: What happens when a file stands where a file goes: ``fail`` (refused before anything is
            published, and again by the rename itself) or ``replace`` (Hadoop's delete.target.files).
        conflict_mode: What happens to a directory that is written to and already holds files: ``append`` leaves
            them, ``fail`` refuses the job, ``replace`` supersedes them.
        superseded_scope: With ``conflict_mode="replace"``: ``directories`` supersedes the subtree of each directory
            written, ``destination`` all of the destination but names that start with ``_`` or ``.`` (without ``=``).
        durability: ``fsync`` survives a power loss, on stores that need it; ``none`` leaves it to the system.
        validate_output: Look at every published file before `_SUCCESS` and compare length and identity.
        promote_directories: Publish a directory that one task attempt alone wrote, and that is absent, in one rename.
        unique_names: Put the job's token into every file name.
        hadoop_driver: Task commits probe the destination directories as Java's do, so that a Java driver can commit.
        io_concurrency: Store calls in flight per endpoint, and workers.
        io_rate: Store calls per second per endpoint; None takes the store's default, 0 is unlimited.
        mark_successful_jobs: Write `_SUCCESS`.
        cleanup_skipped: Leave the job's directory in place after commit or abort.
        cleanup_failures_ignored: A cleanup that fails does not fail the job.
        cleanup_parallel_delete: Delete task attempt directories in parallel before their parent.
        cleanup_base_first: Try one delete of the whole job directory first.
        summary_report_directory: Where `summary-<job id>.json` goes, on any store; empty for nowhere.
        diagnostics_manifest_directory: Where the records of the job are kept after a commit; empty for nowhere.
        record_save_attempts: How often saving a record is tried.
        record_size_limit: Longest record that is read, in bytes.
        manifest_queue_capacity: Records decoded ahead of the workers that need them.
    """

    existing_target: Literal["fail", "replace"] = "fail"
    conflict_mode: Literal["append", "fail", "replace"] = "append"
    superseded_scope: Literal["directories", "destination"] = "directories"
    durability: Literal["none", "fsync"] = "none"
    validate_output: bool = False
    promote_directories: bool = False
    unique_names: bool = False
    hadoop_driver: bool = False
    io_concurrency: int = 256
    io_rate: float | None = None
    mark_successful_jobs: bool = True
    cleanup_skipped: bool = False
    cleanup_failures_ignored: bool = False
    cleanup_parallel_delete: bool = True
    cleanup_base_first: bool = False
    summary_report_directory: str = ""
    diagnostics_manifest_directory: str = ""
    record_save_attempts: int = 5
    record_size_limit: int = 1 << 30
    manifest_queue_capacity: int = 32
