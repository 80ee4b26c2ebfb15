"""Answers ``committer cleanup``: shows what dead jobs left, then removes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from committer.api.cleanup import CleanupReport, clean_and_report, cleanup, clock_told, refuse_to_clean
from committer.api.list_jobs import HALF_MADE, HALF_REMOVED, NO_RECORD, JobInfo, list_jobs
from committer.cli.looking import Look
from committer.cli.output import Answer, Part, line
from committer.cli.session import named
from committer.cli.target import Target, left_entries, planned_end
from committer.cli.text import Exit
from committer.errors import JobNotFoundError
from committer.paths import StorePath
from committer.readable import count
from committer.stages.state.job_directory import JobState


async def plan_clean(target: Target, *, older_than: timedelta | None, force: bool) -> Answer:
    """Plans ``cleanup``; an empty `target.job_id` means every job that is old enough. Refuses a named job that is
    kept.
    """
    session, job_id = target.session, target.job_id or None
    try:
        report = await clean_and_report(
            target.uri, job_id=job_id, older_than=older_than, force=force, dry=True, **session.reach
        )
    except JobNotFoundError:
        if job_id is not None and await left_entries(target):
            return planned_end(target, Look(None), "cleanup", "delete its entries")
        raise
    if job_id in report.kept:
        refuse_to_clean(StorePath.of(target.uri), job_id, report.kept[job_id])
    infos: dict[str, JobInfo] = {}
    for info in await list_jobs(target.uri, **session.reach):
        # At most one of several directories of one id holds a job.
        if infos.get(info.job_id) is None or info.problem not in _HALVES:
            infos[info.job_id] = info
    # Cleanup by age removes nothing of other committers.
    unrecorded = await _of_no_job(target) if job_id in report.removed else _LEFT
    losses = [_with_loss(name, infos.get(name), unrecorded) for name in report.removed]
    parts = [
        line(f"jobs at {target.uri}", "bold"),
        *named("what is left of these will be removed", losses),
        *_kept("will be kept", report),
    ]
    if report.clock_ahead_s is not None and older_than is not None:
        parts.insert(1, line(clock_told(report.clock_ahead_s), indent=2))
    if not report.removed:
        parts.insert(1, line("nothing will be removed", indent=2))
    code = Exit.FAILED if job_id in report.kept else Exit.OK
    data: dict[str, object] = {"done": False, "removes": report.removed, "keeps": report.kept}
    return Answer(data, parts, code, final=not report.removed)


_LOSSES: Final[dict[JobState, str]] = {
    "open": "open: what its tasks wrote was never published, and is lost",
    "committing": "decided to be committed: what it published stays; what it did not publish, and the old files that "
    "it moved aside, are lost",
    "committed": "committed: its published files stay",
    "aborted": "aborted: nothing of it was published",
    "rolled-back": "rolled back: what is not rolled back yet is rolled back first; where that cannot be, it stays, and "
    "the old files that the job moved aside are lost",
    "unknown": "its records do not say how it ended; another process may be removing them now. What it published, if "
    "anything, stays; what is left of its task output is lost",
}


# Hadoop's FileOutputCommitter has one directory for all its jobs at a destination.
_NOT_OURS: Final = (
    "it holds no record of a job: another committer's, whose jobs may share it and be alive. What tasks wrote there, "
    "and no job committed, is lost"
)

_LEFT: Final = (
    "it holds no record of a job: what drivers, tasks and cleanups of this engine left. What tasks wrote there, and no "
    "job committed, is lost"
)

_HALVES: Final = {
    HALF_MADE: "a setup that was not finished, which published nothing; a driver that is setting it up now may fail",
    HALF_REMOVED: "it is over: what it published, if anything, stays; what is left of its task output is lost",
}

_FORGOTTEN: Final = (
    "but its stream cannot tell any more that this batch committed: should it be repeated, it is published a second "
    "time, or stops at the files that exist"
)


async def _of_no_job(target: Target) -> str:
    """Describes the loss of deleting a directory that has no record of a job: one look."""
    found = (await target.look()).found
    return _NOT_OURS if found is not None and found.is_foreign else _LEFT


def _with_loss(name: str, info: JobInfo | None, unrecorded: str) -> str:
    """Describes the loss of removing a job; `unrecorded` if no record describes one."""
    if info is None:
        return name
    if info.kept:
        return f"{name}: {_LOSSES['committed']}; {_FORGOTTEN}"
    lost = unrecorded if info.problem == NO_RECORD else _HALVES.get(info.problem, _LOSSES[info.state])
    return f"{name}: {lost}"


def _kept(head: str, report: CleanupReport) -> list[Part]:
    return named(head, [f"{name}: {reason}" for name, reason in report.kept.items()])


async def run_clean(target: Target, *, older_than: timedelta | None, force: bool) -> Answer:
    """Runs ``committer cleanup`` after confirmation; exit code 1 if a job was kept or could not be removed."""
    session, job_id = target.session, target.job_id or None
    held = job_id is not None and await left_entries(target)
    try:
        report = await cleanup(target.uri, job_id=job_id, older_than=older_than, force=force, **session.reach)
    except JobNotFoundError:
        # Entries of a job that no longer exists are deleted all the same.
        if held and not await left_entries(target):
            return _dropped(target)
        raise
    parts = [line(f"{count(len(report.removed), 'job')} removed, {len(report.kept):,} kept")]
    given_up = [f"{name}: {reason}" for name, reason in report.given_up.items()]
    parts += [
        *named("removed", report.removed),
        *named("of these, removed without their last steps, which failed", given_up),
        *_kept("kept", report),
    ]
    code = Exit.FAILED if job_id in report.kept or report.failed else Exit.OK
    data = {
        "done": code is Exit.OK,
        "removed": report.removed,
        "kept": report.kept,
        "given_up": report.given_up,
        "failed": report.failed,
    }
    return Answer(data, parts, code)


def _dropped(target: Target) -> Answer:
    words = "its entries are deleted; nothing else of it existed"
    return Answer(
        {
            "done": True,
            "job_id": target.job_id,
            "result": words,
            "removed": [],
            "kept": {},
            "given_up": {},
            "failed": [],
        },
        [line(f"job {target.job_id}: {words}")],
    )
