"""What an operator does about jobs at a destination, blocking."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

import msgspec

from committer import operations as engine
from committer import reading, record_files, uploads, validation
from committer.advice import blocking
from committer.committers.results import JobReport, committed_parts
from committer.config import ConfigLike
from committer.events import Listener
from committer.operations import CleanupReport, Destination, JobInfo
from committer.paths import StorePath
from committer.reading import Winners
from committer.record_files import AnyRecord
from committer.records.file_list import CommittedFile
from committer.sync.portal import wait_for
from committer.uploads import UploadInfo, UploadsReport
from committer.validation import ValidationReport


def recover(
    dest: Destination,
    job_id: str,
    *,
    rollback: bool = False,
    force: bool = False,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
    listeners: Iterable[Listener] = (),
) -> JobReport:
    """Finishes a job whose driver died in its commit, as one undisturbed run would have ended.

    May be called from any process, more than once, and by several at a time. A finished job gives its report, as long
    as its kept outcome, its summary report or `_SUCCESS` speaks of it: without the first two until a later job wrote
    `_SUCCESS`.

    Args:
        dest: The job's destination.
        job_id: Its id.
        rollback: Take back what a decided commit published instead of finishing it; abort an undecided job.
        force: The old driver is known to be dead: roll back where the store cannot fence it off, or commit what a
            listing finds although no driver began to.
        config: Where reports and kept records go, `absolute_roots`, and the rate of calls from this process. All else
            is as the job was set up.
        storage_options: How to reach the store.
        progress: True shows a bar with rate and time left in a terminal or a notebook, elsewhere a line every five
            seconds, on standard error; a callable is told each event, on the thread of this module's loop.
        listeners: Called with each event of progress, on the thread of this module's loop.

    Raises:
        JobNotFoundError: There is no such job, and no report speaks of it.
        JobUndecidedError: No driver began to commit it: commit or abort it instead.
        JobDecidedError: It was aborted.
        JobRolledBackError: It was rolled back (without `rollback`).
        OutcomeUnknownError: See `next_step`; nothing was deleted.
    """
    heard = tuple(listeners)
    return wait_for(
        lambda: engine.recover(
            dest,
            job_id,
            rollback=rollback,
            force=force,
            config=config,
            storage_options=storage_options,
            progress=progress,
            listeners=heard,
        ),
        "recover",
    )


def settle(
    dest: Destination,
    job_id: str,
    *,
    older_than: timedelta | float | None = None,
    force: bool = False,
    config: ConfigLike | None = None,
    storage_options: Mapping[str, object] | None = None,
    progress: bool | Listener | None = None,
    listeners: Iterable[Listener] = (),
) -> JobReport | None:
    """Ends what an earlier run of a job id left, and says whether that id is committed.

    Call it before `open_job` where a job may be run again under its id. A job that is decided to be committed is
    finished, as by `recover`; an undecided one is aborted and removed, as by `cleanup`.

    Args:
        dest: The job's destination.
        job_id: Its id.
        older_than: End an undecided job, too, whose newest record is older than this (seconds, or a timedelta).
        force: The driver of an undecided job is known to be dead.
        config: As for `recover`.
        storage_options: How to reach the store.
        progress: As for `recover`.
        listeners: Called with each event of progress, on the thread of this module's loop.

    Returns:
        The report if the job is committed; None if the id is free to run. Once a later job wrote `_SUCCESS`, a
        committed job is known by its summary report (`summary_report_directory`) or its kept outcome (`outcome_kept`);
        without these the result is None.

    Raises:
        JobExistsError: It is undecided, and its driver runs or may run. Nothing was changed.
        OutcomeUnknownError: See `next_step`; nothing was deleted.
    """
    heard = tuple(listeners)
    return wait_for(
        lambda: engine.settle(
            dest,
            job_id,
            older_than=older_than,
            force=force,
            config=config,
            storage_options=storage_options,
            progress=progress,
            listeners=heard,
        ),
        "settle",
    )


def list_jobs(
    dest: Destination, *, storage_options: Mapping[str, object] | None = None, config: ConfigLike | None = None
) -> list[JobInfo]:
    """The jobs that left something below a destination, by id: one listing, and up to four calls a job.

    Committed jobs that were cleaned up are not among them; `_SUCCESS` and summary reports speak of those.
    """
    jobs = wait_for(lambda: engine.list_jobs(dest, storage_options=storage_options, config=config), "list_jobs")
    return [msgspec.structs.replace(job, problem=blocking(job.problem)) if job.problem else job for job in jobs]


def cleanup(
    dest: Destination,
    *,
    job_id: str | None = None,
    older_than: timedelta | float | None = None,
    force: bool = False,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> CleanupReport:
    """Removes what jobs left below a destination's `_temporary`; never anything else.

    An open job is decided `abort` first, so that a driver that still lives learns of it. A job that is decided to be
    committed but did not end is kept unless `force`: its files would be lost; `recover` it instead. An outcome that is
    kept (`CommitterConfig.outcome_kept`) stays unless `force`: without it a stream that repeats that job, as one does
    after a crash, cannot tell that it committed, and publishes its rows a second time or stops at the files that stand.

    Args:
        dest: The destination.
        job_id: This job.
        older_than: Every job whose newest record is older than this (seconds, or a timedelta).
        force: Remove even a decided commit without outcome, and outcomes that are kept.
        storage_options: How to reach the store.
        config: Concurrency and rate of the deletes; `absolute_roots`, below which uploads of the job are ended as well.

    Raises:
        ConfigurationError: Neither `job_id` nor `older_than` was given (it is a ValueError), or that is no age.
        JobDecidedError: The job named by `job_id` is decided to be committed, and not ended.
        OutcomeKeptError: The job named by `job_id` committed, and its outcome is kept. Nothing was changed.
        JobNotFoundError: There is no such job.
    """
    return wait_for(
        lambda: engine.cleanup(
            dest, job_id=job_id, older_than=older_than, force=force, storage_options=storage_options, config=config
        ),
        "cleanup",
    )


def list_uploads(
    dest: Destination,
    *,
    older_than: timedelta | float | None = None,
    sizes: bool = False,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> list[UploadInfo]:
    """The pending uploads anywhere below a directory, by path and age: one call for 1,000.

    Below ``dataset1`` lies nothing of ``dataset10``. Those of jobs that run are among them: nothing tells them apart.

    Args:
        dest: The directory.
        older_than: Only those begun longer ago than this (seconds, or a timedelta), by this machine's clock.
        sizes: Ask for the parts of each, too: a call for each upload and 1,000 of its parts.
        storage_options: How to reach the store.
        config: Concurrency and rate.

    Raises:
        UnsupportedError: The store has no uploads.
        DestinationNotFoundError: There is no such bucket.
    """
    return wait_for(
        lambda: uploads.list_uploads(
            dest, older_than=older_than, sizes=sizes, storage_options=storage_options, config=config
        ),
        "list_uploads",
    )


def abort_uploads(
    dest: Destination,
    *,
    older_than: timedelta | float | None = None,
    force: bool = False,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> UploadsReport:
    """Aborts the pending uploads below a directory: what was sent of their files is lost. Two calls for each.

    A job that still runs loses its output, so an age is needed that no running job has. Each is aborted until the store
    says that it is gone: parts that were under way can outlive the first time.

    Args:
        dest: The directory.
        older_than: Only those begun longer ago than this (seconds, or a timedelta), by this machine's clock.
        force: Whatever their age: the caller vouches that no job runs there.
        storage_options: How to reach the store.
        config: Concurrency and rate.

    Raises:
        ConfigurationError: Neither `older_than` nor `force` was given (it is a ValueError), or that is no age.
        UnsupportedError: The store has no uploads.
        DestinationNotFoundError: There is no such bucket.
    """
    return wait_for(
        lambda: uploads.abort_uploads(
            dest, older_than=older_than, force=force, storage_options=storage_options, config=config
        ),
        "abort_uploads",
    )


def validate(
    dest: str | os.PathLike[str] | StorePath,
    *,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> ValidationReport:
    """Compares a destination with what its job committed: names, lengths, and in a destination that was empty, totals.

    Every file of the complete list that the job kept (`CommitterConfig.file_list_directory`), where `config` names its
    directory again or it lies below the destination: one look a file. Else one look a file that `_SUCCESS` names (at
    most a hundred). When the destination was empty before the job, also one listing a directory.

    Raises:
        JobNotFoundError: There is no `_SUCCESS`.
        RecordError: It cannot be read; an empty one was written by a committer that reports nothing.
    """
    return wait_for(lambda: validation.validate(dest, storage_options=storage_options, config=config), "validate")


def list_winners(
    dest: str | os.PathLike[str] | StorePath,
    *,
    check: bool = True,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> Winners:
    """The files that count at a destination, as its `_SUCCESS` says: all that committer `stocator` lets a reader read.

    Args:
        dest: The destination.
        check: Look whether each file stands there, as long as it was committed.
        storage_options: How to reach its store.
        config: `absolute_roots` and `file_list_directory`, where files or their complete list lie outside.

    Raises:
        JobNotFoundError: There is no `_SUCCESS`.
        DestinationNotFoundError: The destination does not exist, or its bucket or container.
        RecordError: `_SUCCESS` does not name the files, or names one outside.
        ValidationError: A file that it names is not there, or has another length.
    """
    return wait_for(
        lambda: reading.list_winners(dest, check=check, storage_options=storage_options, config=config), "list_winners"
    )


def committed_files(
    report: JobReport, *, storage_options: Mapping[str, object] | None = None
) -> Iterator[CommittedFile]:
    """Every file that a job committed, from its complete list: ``for file in sync.committed_files(report): ...``.

    100,000 files are in memory at a time; each such part costs one call.

    Args:
        report: The job's report.
        storage_options: How to reach the store of the list.

    Raises:
        ConfigurationError: No list was kept, see `JobReport.file_list_problem`; or it is Parquet, and pyarrow is not
            there.
        StoreNotFoundError: The list is gone.
        RecordError: It is damaged, or names other totals than were committed.
    """
    parts = committed_parts(report, storage_options)

    async def next_part() -> list[CommittedFile] | None:
        return await anext(parts, None)

    try:
        while (part := wait_for(next_part, "committed_files")) is not None:
            yield from part
    finally:
        wait_for(parts.aclose, "committed_files")


def load_record(
    uri: Destination,
    *,
    storage_options: Mapping[str, object] | None = None,
    config: ConfigLike | None = None,
) -> AnyRecord:
    """Reads one record, whatever it is: task manifest, `_SUCCESS` or summary, ``.pending``, ``.pendingset``, setup,
    intent, decision, outcome, entry, list of uploads.

    Args:
        uri: Its URI or path.
        storage_options: How to reach the store.
        config: Bounds its size (`record_size_limit`).

    Raises:
        RecordError: It is none of them, or a bad one; names file and member.
        StoreNotFoundError: Nothing is there.
    """
    return wait_for(
        lambda: record_files.load_record(uri, storage_options=storage_options, config=config), "load_record"
    )
