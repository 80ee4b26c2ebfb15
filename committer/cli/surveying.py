"""Answers ``committer jobs``: jobs of this engine and of Hadoop below `_temporary`, and orphans."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from committer.api.list_jobs import HALF_MADE, HALF_REMOVED, JobInfo, list_jobs
from committer.cli.looking import (
    Look,
    Owner,
    count_of_hadoop,
    count_of_ours,
    jobs_of_orphans,
    look_at,
    look_at_setup,
    out_of_sight,
    owner_of,
)
from committer.cli.output import Answer, Part, copyable, line, styled, table
from committer.cli.session import Session
from committer.cli.text import age, command, destination_above, told_destination
from committer.cli.what_to_do import FORCE, Advice, advice_on, advice_on_half
from committer.committers.registry import layout_for
from committer.driver_process import DriverProcess, DriverState
from committer.errors import DestinationNotFoundError, StorePermissionError
from committer.flow.workers import run_workers
from committer.layout import DirectoryName, JobLayout, is_job_id
from committer.paths import StorePath
from committer.readable import count
from committer.stores.base import Store

_HALVES = (HALF_MADE, HALF_REMOVED)
_STATE_STYLES = {"committing": "yellow", "unknown": "red", "committed": "green"}


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """Directory below `_temporary`, as a row of the list.

    Attributes:
        directory: Its name. Several may exist for one id: a job's, and those of incomplete setups and removals.
        state: From `list_jobs`; ``unknown`` for other owners.
        kept: True if its outcome is kept for a stream: do not remove such a job.
        task_records: Number of task records, of a Hadoop job or of one that no driver began to commit.
        attention: As `next_step`, `otherwise` and `if_dead` of `Advice`; ``N`` in a command stands for the number of
            tasks, which only the job's author knows.
        driver_state: Whether that process runs, as far as this machine knows.
    """

    job_id: str
    directory: str
    owner: Owner
    state: str
    delivery: str | None = None
    started: datetime | None = None
    updated: datetime | None = None
    files: int | None = None
    kept: bool = False
    task_records: int | None = None
    attention: str = ""
    next_step: str = ""
    otherwise: str = ""
    if_dead: list[str] = []
    driver: DriverProcess | None = None
    driver_state: DriverState = "unknown"


async def jobs(session: Session, uri: str) -> Answer:
    """Lists jobs and problems; raises DestinationNotFoundError for a place without jobs inside `_temporary`."""
    destination = StorePath.of(uri)
    infos = await list_jobs(destination, **session.reach)
    async with session.store(destination) as store:
        rows: dict[str, JobRow] = {}

        async def survey(info: JobInfo) -> None:
            if info.problem in _HALVES:
                rows[info.directory] = _row_of_half(uri, info, beside=info.job_id in whole)
            else:
                rows[info.directory] = await _row(store, uri, destination, info)

        whole = {info.job_id for info in infos if info.problem not in _HALVES}

        await run_workers(infos, survey, workers=session.config.io_concurrency, operation="jobs")
        orphans = await jobs_of_orphans(store, destination)
    ordered = [rows[info.directory] for info in infos]
    above = destination_above(uri)
    if above and not ordered:
        raise DestinationNotFoundError(
            f"that is no destination: the jobs of {above} work there",
            operation="list_jobs",
            path=destination,
            next_step=told_destination(above),
        )
    data: dict[str, object] = {"destination": str(destination), "jobs": ordered, "jobs_of_orphan_entries": orphans}
    return Answer(data, _parts(uri, ordered, orphans))


async def _look(store: Store, layout: JobLayout) -> Look:
    """Calls `look_at`; an unreadable job does not hide the others."""
    try:
        return await look_at(store, layout)
    except StorePermissionError as error:
        return out_of_sight(layout, error)


def _row_of_half(uri: str, info: JobInfo, *, beside: bool) -> JobRow:
    advice = advice_on_half(uri, info, beside=beside)
    return JobRow(
        job_id=info.job_id,
        directory=info.directory,
        owner="committer",
        state=info.state,
        attention=advice.attention,
        next_step=advice.next_step,
        if_dead=list(advice.if_dead),
    )


async def _row(store: Store, uri: str, destination: StorePath, info: JobInfo) -> JobRow:
    look = await _look(store, layout_for(store, destination, info.job_id, setup=DirectoryName.of(info.directory).setup))
    if info.state == "unknown":
        look = await look_at_setup(store, look)
    found = look.found
    owner: Owner = "unknown" if look.link is not None or look.is_out_of_sight else "nobody"
    if found is not None and look.link is None and not look.is_out_of_sight:
        owner = await owner_of(store, found)
    records: int | None = None
    if found is not None and owner == "hadoop":
        records = await count_of_hadoop(store, found)
    elif info.state == "open" and owner == "committer" and info.delivery is not None and look.intent is None:
        records = await count_of_ours(store, destination, info)
    advice = await advice_on(store, uri, info, look, owner, records)
    if not is_job_id(info.job_id):
        advice = Advice("no job has such a name: look at it, and remove it by hand")
    return JobRow(
        job_id=info.job_id,
        directory=info.directory,
        owner=owner,
        state=info.state if owner in ("committer", "hadoop") or look.is_settled else "unknown",
        delivery=info.delivery,
        started=info.started,
        updated=info.updated,
        files=info.files,
        kept=look.is_kept,
        task_records=records,
        attention=advice.attention,
        next_step=advice.next_step,
        otherwise=advice.otherwise,
        if_dead=list(advice.if_dead),
        driver=info.driver,
        driver_state=info.driver_state,
    )


def _parts(uri: str, rows: list[JobRow], orphans: list[str]) -> list[Part]:
    if not (rows or orphans):
        return [line("no jobs exist below _temporary")]
    now = datetime.now(UTC)
    parts: list[Part] = []
    if rows:
        parts.append(
            table(
                ("job", "owner", "state", "files", "age"),
                [
                    (
                        _name(row, rows),
                        row.owner,
                        styled(row.state, _STATE_STYLES.get(row.state, "")),
                        "" if row.files is None else f"{row.files:,}",
                        age(row.updated, now),
                    )
                    for row in rows
                ],
                right=(3,),
            )
        )
    for row in rows:
        parts += _what_to_do(row, rows)
    if orphans:
        parts += [line(""), line("entries of jobs that are gone: they block no job", "bold")]
        parts += [copyable(command("cleanup", uri, "--job", job_id)) for job_id in orphans]
    return parts


def _shares_id(row: JobRow, rows: list[JobRow]) -> bool:
    return any(other.job_id == row.job_id and other.directory != row.directory for other in rows)


def _name(row: JobRow, rows: list[JobRow]) -> str:
    """Returns the job's id, or the directory if several share the id."""
    return row.directory if _shares_id(row, rows) else row.job_id


def _what_to_do(row: JobRow, rows: list[JobRow]) -> list[Part]:
    if not (row.attention or row.if_dead):
        return []
    parts = [line(""), line(_name(row, rows), "bold")]
    if row.attention:
        parts.append(line(row.attention, indent=2))
    if row.driver is not None and not row.kept:
        known = {"unknown": "whether it runs is not known here", "running": "running; wait for it if it is at work"}
        runs = known.get(row.driver_state, row.driver_state)
        parts.append(line(f"driver: {row.driver.words}: {runs}", indent=2))
    if row.next_step:
        parts.append(copyable(row.next_step))
    if row.otherwise:
        alone = "once no other driver of it is alive, " if row.otherwise.endswith(FORCE) else ""
        parts += [line(f"or, {alone}to end it with nothing of it published:", indent=2), copyable(row.otherwise)]
    if row.if_dead:
        done = count(row.task_records or 0, "task attempt" if row.delivery == "message" else "task")
        is_dead = row.driver_state == "dead"
        may_run = "" if is_dead else "; its driver may be at work"
        state = "" if row.attention else f"open, {done} committed{may_run}. "
        choice = ", one of these, N being the number of the job's tasks" if len(row.if_dead) > 1 else ""
        dead = "If no such job is alive" if row.owner == "classic" else "If it is dead"
        dead = "To end it" if is_dead else dead
        if row.attention in _HALVES and _shares_id(row, rows):
            dead = f"Once no job {row.job_id} runs"
        parts += [line(f"{state}{dead}{choice}:", indent=2), *map(copyable, row.if_dead)]
    return parts
