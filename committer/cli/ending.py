"""Commands that end a job: plan, commit, recover, settle, abort and cleanup, each with its plan."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from committer.api.cleanup import CleanupReport, clean_and_report, cleanup, clock_told, refuse_to_clean
from committer.api.list_jobs import HALF_MADE, HALF_REMOVED, NO_RECORD, JobInfo, list_jobs
from committer.api.recover import check_recovery, check_settlement, recover, settle
from committer.cli.looking import Look
from committer.cli.output import MOST_TOLD, Answer, Part, copyable, line, pairs
from committer.cli.session import Session, named
from committer.cli.target import Target, how_to_name_winners, left_entries, planned_end
from committer.cli.text import Exit, command, usage_error
from committer.committers.registry import committer_for
from committer.committers.results import CommitPlan, JobReport
from committer.committers.standing import MEANINGS, Standing
from committer.committers.trusted_config import OF_CALLER
from committer.errors import JobDecidedError, JobNotFoundError, JobStateError
from committer.paths import StorePath
from committer.readable import count, seconds, size
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.state.job_directory import JobState

# -- plan and commit ------------------------------------------------------------------------------------------------


async def plan(target: Target, messages: list[TaskCommit] | None, tasks: int | None, *, from_attempts: bool) -> Answer:
    """Answers ``committer plan``; exit code 1 if the commit would be refused."""
    look = await target.look()
    if look.unread is not None:
        raise look.unread
    if look.is_settled:
        data: dict[str, object] = {"job_id": target.job_id, "state": look.words, "plan": None}
        parts = [line(f"job {target.job_id} at {target.uri}", "bold"), pairs([("state", look.words)], indent=2)]
        if look.decision is not None and look.decision.decision == "commit" and look.outcome is None:
            parts.append(line("there is nothing to plan: a commit or recover carries out what is decided", indent=2))
        return Answer(data, parts)
    async with target.attach() as job:
        if messages is None and job.spec.delivery == "message" and not from_attempts:
            raise usage_error(
                f"job {target.job_id} takes task commits by message: the command line must say which attempts win",
                how_to_name_winners(target),
            )
        found = await job.plan(messages, tasks, from_attempts=from_attempts)
        spec = job.spec
    notes = _without_effect(target.session, spec)
    parts = [line(f"job {target.job_id} at {target.uri}", "bold"), *_planned(target, found, look, spec)]
    data = {"job_id": target.job_id, "state": look.words, "plan": found}
    return Answer(data, parts, Exit.FAILED if found.conflicts else Exit.OK, notes)


def _planned(target: Target, found: CommitPlan, look: Look, spec: JobSpec) -> list[Part]:
    rows = [
        ("state", look.words),
        (
            "set up by",
            f"Hadoop's {spec.committer} committer" if spec.hadoop else f"this engine, delivery by {spec.delivery}",
        ),
        ("publishes", f"{count(found.files, 'file')}, {size(found.bytes)}, of {count(found.tasks, 'task')}"),
        ("makes", _directories(len(found.directories)) if found.directories else ""),
    ]
    parts: list[Part] = [pairs(rows, indent=2)]
    parts += named("replaces or takes away", found.replaced, most=MOST_TOLD)
    parts += named("leaves alone", found.stray)
    parts += named("would be refused", found.conflicts, "bold red", most=MOST_TOLD)
    if found.conflicts:
        ends = line("where that cannot be mended, this ends the job with nothing published:", indent=2)
        parts += [ends, copyable(target.command("abort"))]
    return parts


def _directories(number: int) -> str:
    return f"{number:,} director{'y' if number == 1 else 'ies'}"


def _without_effect(session: Session, spec: JobSpec) -> list[str]:
    if spec.hadoop:
        return []
    return [
        f"-o {field} has no effect: the job keeps the choices it was set up with"
        for field in session.choices.given
        if field not in OF_CALLER
    ]


async def commit(
    target: Target, messages: list[TaskCommit] | None, tasks: int | None, *, from_attempts: bool
) -> Answer:
    """Runs ``committer commit`` after confirmation."""
    async with target.attach() as job:
        report = await job.commit(messages, tasks, from_attempts=from_attempts)
    return _reported(report, "committed")


def _reported(report: JobReport, what: str) -> Answer:
    rows = [
        ("files", f"{report.files_committed:,}"),
        ("bytes", size(report.bytes_committed)),
        ("directories", f"{report.directories_created:,} made" if report.directories_created else ""),
        ("renames recovered", f"{report.renames_recovered:,}" if report.renames_recovered else ""),
        ("took", seconds(report.duration_s)),
    ]
    parts: list[Part] = [line(f"job {report.job_id}: {what}", "green" if report.success else "")]
    if report.success:
        parts.append(pairs(rows, indent=2))
    parts += named("uploads that still pend there, and may be another job's", report.uploads_left, most=MOST_TOLD)
    return Answer({"done": True, "report": report}, parts)


# -- recover and abort ----------------------------------------------------------------------------------------------


async def plan_recover(target: Target, *, rollback: bool, force: bool) -> Answer:
    """Plans ``recover``; raises the error that it would be refused with."""
    # First: a job behind a link is not judged.
    look = await target.look()
    await check_recovery(target.uri, target.job_id, rollback=rollback, force=force, **target.session.reach)
    decision, outcome = look.decision, look.outcome
    if outcome is not None:
        will = f"do the last steps of a job that is {outcome.outcome}, remove its directory and report"
    elif look.found is None:
        will = "look for a report of the job, which has no directory any more"
    elif look.is_no_job:
        first = "remove what is left of the job, and " if look.half else ""
        will = f"{first}look for a report of the job, of which no record exists any more"
    elif decision is not None and decision.decision == "abort":
        will = "remove what is left of the aborted job"
    elif decision is not None:
        files = f"{count(decision.files, 'file')}, {size(decision.size)}"
        # Mentioned only if old files can have been moved aside.
        replaces = decision.replacing or decision.config.existing_target == "replace"
        will = (
            f"roll back what was published of {files}{'; old files come back' if replaces else ''}"
            if rollback
            else f"publish what is missing of {files}, then write _SUCCESS and remove the job's directory"
        )
    elif rollback:
        will = "abort the job: its directory is deleted, with the task output in it"
    elif look.intent is not None:
        will = "go on where a driver began: decide to commit what its tasks committed, and publish it"
    else:
        will = "commit what a listing finds, although no driver began to"
    return planned_end(target, look, "recover", will)


async def run_recover(target: Target, *, rollback: bool, force: bool) -> Answer:
    """Runs ``committer recover`` after confirmation."""
    session = target.session
    report = await recover(
        target.uri, target.job_id, rollback=rollback, force=force, progress=session.display, **session.reach
    )
    if rollback and report.success:
        raise JobStateError(
            f"job {target.job_id} is committed, and was cleaned up: it cannot be rolled back",
            operation="recover",
            path=StorePath.of(target.uri),
            outcome="committed",
            next_step="remove its files by hand if you must; _SUCCESS names them if no later job committed",
        )
    return _reported(report, "committed" if report.success else "rolled back")


async def plan_settle(target: Target, *, older_than: timedelta | None, force: bool) -> Answer:
    """Plans ``settle``; raises JobExistsError if the job's driver may be alive."""
    session = target.session
    look = await target.look()
    standing = await check_settlement(target.uri, target.job_id, older_than=older_than, force=force, **session.reach)
    if standing in (Standing.OPEN, Standing.INTENDED, Standing.ABORTED):
        will = "decide that the job is never committed, and delete its directory with the task output in it"
    elif look.found is None or look.is_no_job:
        will = "remove what is left of the job, if anything, and look for a report of it"
    else:
        will = f"bring the job to its end: {MEANINGS[standing]}"
    return planned_end(target, look, "settle", will)


async def run_settle(target: Target, *, older_than: timedelta | None, force: bool) -> Answer:
    """Runs ``committer settle`` after confirmation; exit code 4 if the id is free to run."""
    session = target.session
    report = await settle(
        target.uri, target.job_id, older_than=older_than, force=force, progress=session.display, **session.reach
    )
    if report is not None:
        return _reported(report, "committed")
    return _ended(target, "nothing says that it committed: its id is free to run", Exit.NOT_FOUND)


async def plan_abort(target: Target) -> Answer:
    """Plans ``abort``; raises JobNotFoundError if not even an entry exists, JobDecidedError if decided to commit."""
    look = await target.look()
    if look.unread is not None:
        raise look.unread
    if look.absent is not None and not await left_entries(target):
        raise look.absent
    if look.is_no_job and not look.is_settled:
        raise JobNotFoundError(
            f"there is no job {target.job_id} at {target.uri}: {look.half or 'its directory holds no record of one'}",
            operation="abort",
            path=look.found.layout.job_directory if look.found is not None else StorePath.of(target.uri),
            next_step=f"`{command('jobs', target.uri)}` shows what exists there, and what removes it",
        )
    if look.outcome is not None:
        return replace(
            planned_end(target, look, "abort", f"do nothing: the job is {look.outcome.outcome}"), code=Exit.FAILED
        )
    if look.decision is not None and look.decision.decision == "commit":
        raise JobDecidedError(
            f"job {target.job_id} is decided to be committed: it cannot be aborted any more",
            operation="abort",
            path=look.found.layout.decision if look.found is not None else StorePath.of(target.uri),
            outcome="partial",
            next_step=f"`{target.command('recover')}` finishes it; {await _taking_back(target)}",
        )
    if look.found is None:
        will = "delete the entries of the job, which is gone"
    else:
        will = "decide that the job is never committed, and delete its directory with the task output in it"
    return planned_end(target, look, "abort", will)


async def _taking_back(target: Target) -> str:
    async with target.attach() as job:
        if committer_for(job.spec.committer).forms(job.spec).forward_only:
            return "it cannot be rolled back, for its tasks made its files visible"
    return f"`{target.command('recover', '--rollback')}` rolls it back"


async def run_abort(target: Target) -> Answer:
    """Runs ``committer abort`` after confirmation."""
    look = await target.look()
    if look.found is None:
        # Only the job's entries can exist.
        return await run_clean(target, older_than=None, force=False)
    if look.outcome is not None:
        return _ended(target, f"was not aborted: it is {look.outcome.outcome}", Exit.FAILED)
    async with target.attach() as job:
        await job.abort()
    # An abort does nothing, and reports nothing, if the job ended meanwhile.
    after = await target.look()
    if after.outcome is not None:
        return _ended(target, f"was not aborted: it is {after.outcome.outcome}", Exit.FAILED)
    return _ended(target, "aborted", Exit.OK)


def _ended(target: Target, words: str, code: Exit) -> Answer:
    return Answer(
        {"done": code is not Exit.FAILED, "job_id": target.job_id, "result": words},
        [line(f"job {target.job_id}: {words}")],
        code,
    )


# -- cleanup ---------------------------------------------------------------------------------------------------------


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
    "open": "open: it never committed, and the task output in its directory is lost",
    "committing": "decided to be committed: what it published stays; what it did not publish, and the old files that "
    "it moved aside, are lost",
    "committed": "committed: its published files stay",
    "aborted": "aborted: nothing of it was published",
    "rolled-back": "rolled back: what is not rolled back yet is rolled back first; where that cannot be, it stays, and "
    "the old files that the job moved aside are lost",
    "unknown": "its records do not say how it ended; another process may be removing them now. What it published, if "
    "anything, stays; what is left of its task output, and the old files that it moved aside, are lost",
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
    dropped = ""
    try:
        report = await cleanup(target.uri, job_id=job_id, older_than=older_than, force=force, **session.reach)
    except JobNotFoundError:
        # Entries of a job that no longer exists are deleted all the same.
        if not held or await left_entries(target):
            raise
        report, dropped = CleanupReport(removed=[], kept={}), "its entries are deleted; nothing else of it existed"
    told = f"{count(len(report.removed), 'job')} removed, {len(report.kept):,} kept"
    parts = [line(f"job {target.job_id}: {dropped}" if dropped else told)]
    given_up = [f"{name}: {reason}" for name, reason in report.given_up.items()]
    parts += [
        *named("removed", report.removed),
        *named("of these, removed without their last steps, which failed", given_up),
        *_kept("kept", report),
    ]
    code = Exit.FAILED if job_id in report.kept or report.failed else Exit.OK
    data = {
        **({"job_id": target.job_id, "result": dropped} if dropped else {}),
        "done": code is Exit.OK,
        "removed": report.removed,
        "kept": report.kept,
        "given_up": report.given_up,
        "failed": report.failed,
    }
    return Answer(data, parts, code)
