"""``committer cleanup``: what dead jobs left, shown first and then removed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from committer.cli.exits import Exit
from committer.cli.output import Answer, Part, line
from committer.cli.session import named
from committer.cli.surveying import Look
from committer.cli.target import Target, holds_lock, planned_end
from committer.cli.text import count
from committer.errors import JobNotFoundError
from committer.operations import CleanupReport, cleanup, list_jobs, plan_cleanup


async def plan_clean(target: Target, *, older_than: timedelta | None, force: bool) -> Answer:
    """What ``cleanup`` will remove and keep; `target.job_id` is empty for every job that is old enough.

    Raises:
        JobNotFoundError: Nothing of the named job stands, not even a lock.
    """
    session, job_id = target.session, target.job_id or None
    try:
        report = await plan_cleanup(
            target.uri,
            job_id=job_id,
            older_than=older_than,
            force=force,
            storage_options=session.storage,
            config=session.config,
        )
    except JobNotFoundError:
        if job_id is not None and await holds_lock(target):
            return planned_end(target, Look(None), "cleanup", "release its replace lock")
        raise
    infos = await list_jobs(target.uri, storage_options=session.storage, config=session.config)
    states = {info.job_id: info.state for info in infos}
    parts = [
        line(f"jobs at {target.uri}", "bold"),
        *named("will be removed, with what their tasks wrote", [_with_state(name, states) for name in report.removed]),
        *_kept("will be kept", report),
    ]
    if not report.removed:
        parts.insert(1, line("nothing will be removed", indent=2))
    return Answer({"done": False, "removes": report.removed, "keeps": report.kept}, parts)


def _with_state(name: str, states: Mapping[str, str]) -> str:
    return f"{name} ({states[name]})" if name in states else name


def _kept(head: str, report: CleanupReport) -> list[Part]:
    return named(head, [f"{name}: {reason}" for name, reason in report.kept.items()])


async def run_clean(target: Target, *, older_than: timedelta | None, force: bool) -> Answer:
    """``committer cleanup``, once it may; exit code 1 when the named job was kept."""
    session, job_id = target.session, target.job_id or None
    held = job_id is not None and await holds_lock(target)
    try:
        report = await cleanup(
            target.uri,
            job_id=job_id,
            older_than=older_than,
            force=force,
            storage_options=session.storage,
            config=session.config,
        )
    except JobNotFoundError:
        # Of a job that is gone the lock is released all the same.
        if held and not await holds_lock(target):
            return _released(target)
        raise
    parts = [line(f"{count(len(report.removed), 'job')} removed, {len(report.kept):,} kept")]
    parts += [*named("removed", report.removed), *_kept("kept", report)]
    code = Exit.FAILED if job_id in report.kept else Exit.OK
    return Answer({"done": code is Exit.OK, "removed": report.removed, "kept": report.kept}, parts, code)


def _released(target: Target) -> Answer:
    words = "its replace lock is released; nothing else of it stood"
    return Answer(
        {"done": True, "job_id": target.job_id, "result": words, "removed": [], "kept": {}},
        [line(f"job {target.job_id}: {words}")],
    )
