"""Answers ``committer jobs``: jobs of this engine and of Hadoop below `_temporary`, orphans, and what settles each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple, cast

import msgspec

from committer.advice import page
from committer.api.list_jobs import HALF_MADE, HALF_REMOVED, NO_JOBS_NAME, JobInfo, list_jobs
from committer.cli.looking import (
    Look,
    Owner,
    can_be_joined,
    count_of_hadoop,
    count_of_ours,
    jobs_of_orphans,
    look_at,
    look_at_setup,
    owner_of,
    with_step,
)
from committer.cli.output import Answer, Part, builtins_of, copyable, line, styled, table
from committer.cli.session import Session
from committer.cli.text import age, command, destination_above, told_destination
from committer.committers.registry import committer_for, is_known, layout_for, suited_committer
from committer.errors import DestinationNotFoundError, StoreError, StoreLinkError, StoreNotFoundError, UnsupportedError
from committer.flow.workers import run_workers
from committer.layout import TEMPORARY, DirectoryName, is_job_id
from committer.paths import StorePath
from committer.readable import count
from committer.records.job_state import Decision
from committer.stages.state.job_directory import JobDirectory
from committer.stages.state.job_liveness import is_hadoops
from committer.stores.base import Store
from committer.stores.helpers import walk

_HALVES = (HALF_MADE, HALF_REMOVED)
_STATE_STYLES = {"committing": "yellow", "unknown": "red", "committed": "green"}

_FORCE: Final = "--force"
_KEPT: Final = "committed, and its outcome is kept for a stream or a rerun, which knows by it that its work is done"


@dataclass(frozen=True, slots=True)
class Advice:
    """Problem of a job, and commands that settle it.

    Attributes:
        attention: The problem; empty for a job that may just be running.
        next_step: A command that settles the job even while a driver is alive; may be empty.
        otherwise: Instead, a command that ends the job with nothing published; with ``--force`` if a rollback does
            not keep other drivers out, so that the operator must know that none is alive.
        if_dead: Commands of which one settles the job once its driver is known to be dead.
    """

    attention: str = ""
    next_step: str = ""
    otherwise: str = ""
    if_dead: Sequence[str] = ()


class JobRow(NamedTuple):
    """Directory below `_temporary`, as a row of the list.

    Attributes:
        info: From `list_jobs`; its state is ``unknown`` for other owners.
        advice: ``N`` in a command stands for the number of tasks, which only the job's author knows.
        task_records: Number of task records, of a Hadoop job or of one that no driver began to commit.
    """

    info: JobInfo
    owner: Owner
    advice: Advice
    task_records: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Returns all members as one mapping."""
        info, advice = (cast("dict[str, object]", builtins_of(of)) for of in (self.info, self.advice))
        return {**info, "owner": self.owner, "task_records": self.task_records, **advice}


async def jobs(session: Session, uri: str) -> Answer:
    """Lists jobs and problems; raises DestinationNotFoundError for a place without jobs inside `_temporary`."""
    destination = StorePath.of(uri)
    infos = await list_jobs(destination, **session.reach)
    async with session.store(destination) as store:
        rows: dict[str, JobRow] = {}

        async def survey(info: JobInfo) -> None:
            if info.problem in _HALVES:
                advice = advice_on_half(uri, info, beside=info.job_id in whole)
                rows[info.directory] = JobRow(info, "committer", advice)
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
    data: dict[str, object] = {
        "destination": str(destination),
        "jobs": [row.to_dict() for row in ordered],
        "jobs_of_orphan_entries": orphans,
    }
    return Answer(data, _parts(uri, ordered, orphans))


async def _row(store: Store, uri: str, destination: StorePath, info: JobInfo) -> JobRow:
    layout = layout_for(store, destination, info.job_id, setup=DirectoryName.of(info.directory).setup)
    look = await look_at(store, layout)
    if info.state == "unknown":
        look = await look_at_setup(store, look)
    found = look.found
    owner: Owner = "nobody" if look.hidden is None else "unknown"
    if found is not None and look.hidden is None:
        owner = await owner_of(store, found)
    records: int | None = None
    if found is not None and owner == "hadoop":
        records = await count_of_hadoop(store, found)
    elif info.state == "open" and owner == "committer" and info.delivery is not None and look.intent is None:
        records = await count_of_ours(store, destination, info)
    advice = await advice_on(store, uri, info, look, owner, records)
    if not is_job_id(info.job_id):
        advice = Advice(NO_JOBS_NAME)
    if not (owner in ("committer", "hadoop") or look.is_settled):
        info = msgspec.structs.replace(info, state="unknown")
    return JobRow(msgspec.structs.replace(info, kept=look.is_kept), owner, advice, records)


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
                        styled(row.info.state, _STATE_STYLES.get(row.info.state, "")),
                        "" if row.info.files is None else f"{row.info.files:,}",
                        age(row.info.updated, now),
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
    return any(other.info.job_id == row.info.job_id and other.info.directory != row.info.directory for other in rows)


def _name(row: JobRow, rows: list[JobRow]) -> str:
    """Returns the job's id, or the directory if several share the id."""
    return row.info.directory if _shares_id(row, rows) else row.info.job_id


def _what_to_do(row: JobRow, rows: list[JobRow]) -> list[Part]:
    if not (row.advice.attention or row.advice.if_dead):
        return []
    parts = [line(""), line(_name(row, rows), "bold")]
    if row.advice.attention:
        parts.append(line(row.advice.attention, indent=2))
    if row.info.driver is not None and not row.info.kept:
        known = {"unknown": "whether it runs is not known here", "running": "running; wait for it if it is at work"}
        runs = known.get(row.info.driver_state, row.info.driver_state)
        parts.append(line(f"driver: {row.info.driver.words}: {runs}", indent=2))
    if row.advice.next_step:
        parts.append(copyable(row.advice.next_step))
    if row.advice.otherwise:
        alone = "once no other driver of it is alive, " if row.advice.otherwise.endswith(_FORCE) else ""
        parts += [line(f"or, {alone}to end it with nothing of it published:", indent=2), copyable(row.advice.otherwise)]
    if row.advice.if_dead:
        done = count(row.task_records or 0, "task attempt" if row.info.delivery == "message" else "task")
        is_dead = row.info.driver_state == "dead"
        may_run = "" if is_dead else "; its driver may be at work"
        state = "" if row.advice.attention else f"open, {done} committed{may_run}. "
        choice = ", one of these, N being the number of the job's tasks" if len(row.advice.if_dead) > 1 else ""
        dead = "If no such job is alive" if row.owner == "classic" else "If it is dead"
        dead = "To end it" if is_dead else dead
        if row.advice.attention in _HALVES and _shares_id(row, rows):
            dead = f"Once no job {row.info.job_id} runs"
        parts += [line(f"{state}{dead}{choice}:", indent=2), *map(copyable, row.advice.if_dead)]
    return parts


# -- advice ----------------------------------------------------------------------------------------------------------


def ways_out(uri: str, job_id: str, delivery: str, records: int | None = None) -> list[str]:
    """Returns the commands of which one ends a job without commit driver, once the job's driver is dead.

    `records` is the number of committed tasks, if known: without any there is nothing to commit.
    """
    winners = ["--from-attempts"] if delivery == "message" else []
    both = [command("commit", uri, job_id, *winners, "--tasks", "N"), command("abort", uri, job_id)]
    return both[1:] if records == 0 else both


def advice_on_half(uri: str, info: JobInfo, *, beside: bool) -> Advice:
    """Advises to remove a directory that an incomplete setup or removal left.

    `beside` is True if a job of the same id exists, which a cleanup by that id would end.
    """
    clean = command("cleanup", uri, "--job", info.job_id)
    if beside or info.problem == HALF_MADE:
        return Advice(info.problem, if_dead=[clean])
    return Advice(info.problem, clean)


async def advice_on(store: Store, uri: str, info: JobInfo, look: Look, owner: Owner, records: int | None) -> Advice:
    """Returns a job's problem and commands; makes calls only for Hadoop's jobs and for a kept outcome."""
    clean = command("cleanup", uri, "--job", info.job_id)
    found = look.found
    if found is None:
        return Advice("it ended while it was looked at")
    if look.hidden is not None:
        unread = "" if isinstance(look.hidden, StoreLinkError) else "its directory cannot be read: "
        return Advice(f"{unread}{with_step(look.hidden)}")
    if look.problem:
        lost = "what it did not publish, and the old files that it moved aside, are lost when it is removed"
        told = f"a record cannot be read: {look.problem}"
        return Advice(f"{told}: {lost}", f"{clean} --force") if look.is_damaged else Advice(told)
    if look.is_settled:
        return await _on_settled(store, uri, look, found, _unsafe(info))
    if owner == "hadoop":
        return await _on_hadoops(store, uri, found, records)
    if owner == "classic":
        return Advice(_of_classics(store, uri, found), if_dead=[f"{clean} --force"])
    if owner == "unknown":
        return Advice("holds no record of a job: another committer's, perhaps alive", if_dead=[f"{clean} --force"])
    if owner == "nobody":
        return Advice("an orphan: no setup record, no output", clean)
    if not found.set_up:
        return Advice(
            "a job without setup record: it was lost, or a task wrote there when its job was over; perhaps alive",
            if_dead=[clean],
        )
    if look.intent is not None:
        recover = command("recover", uri, info.job_id)
        return Advice("a driver began to commit it, and did not decide", recover, f"{recover} --rollback")
    unsafe = _unsafe(info)
    said = f"open. {info.committer} is unsafe: {unsafe}" if unsafe else ""
    return Advice(said, if_dead=ways_out(uri, info.job_id, info.delivery, records)) if info.delivery else Advice()


def _of_classics(store: Store, uri: str, found: JobDirectory) -> str:
    """Describes a job attempt directory of FileOutputCommitter, which its jobs of a destination share."""
    tasks = tasks_by_job(found.children)
    with_reducers = _ids_with_reducers(found.children)
    jobs = sorted(tasks, key=lambda job: (job in with_reducers, job))
    more = f" and {len(jobs) - 1:,} more" if len(jobs) > 1 else ""
    output, commits = "", ""
    if tasks:
        output = f", with the output of {count(tasks.total(), 'committed task')} of {jobs[0]}{more}"
        if can_commit(store) and jobs[0] not in with_reducers:
            commits = f"; `{command('commit', uri, jobs[0])}` says how Python commits it"
    return (
        f"a directory that all jobs of Hadoop's FileOutputCommitter share there{output}; perhaps one is alive{commits}"
    )


def _unsafe(info: JobInfo) -> str:
    return committer_for(info.committer).unsafe if info.committer is not None and is_known(info.committer) else ""


async def _on_settled(store: Store, uri: str, look: Look, found: JobDirectory, unsafe: str) -> Advice:
    job_id = found.layout.job_id
    recover, clean = command("recover", uri, job_id), command("cleanup", uri, "--job", job_id)
    back = command("recover", uri, job_id, "--rollback")
    if look.outcome is None:
        if look.decision is not None and look.decision.decision == "abort":
            return Advice("aborted, but not cleaned up", clean)
        forward_only = unsafe or (look.decision is not None and _may_only_go_forward(store, look.decision))
        vouched = "" if store.capabilities.fences_drivers else f" {_FORCE}"
        otherwise = "" if forward_only else f"{back}{vouched}"
        return Advice("decided to be committed, not ended: part of it may be visible", recover, otherwise)
    how = look.outcome.outcome
    if found.layout.setup_name and not (found.set_up or look.is_kept):
        return Advice(f"{how}, but not cleaned up", clean)
    if not look.is_kept:
        return Advice(f"{how}, but its last steps were not done", back if how == "rolled-back" else recover)
    if await _stands_alone(store, found):
        return Advice(_KEPT)
    return Advice(f"{_KEPT}; something else exists beside it", recover)


def _may_only_go_forward(store: Store, decision: Decision) -> bool:
    """Reports whether a rollback may be refused, by the decision alone, without its side files."""
    if store.capabilities.hard_links or not decision.replacing:
        return False
    return bool(decision.plan) or any(fact.kind == "target" for fact in decision.facts)


async def _stands_alone(store: Store, found: JobDirectory) -> bool:
    """Reports whether only the outcome is left of a job: without real directories, one listing per directory.

    On such stores a listed directory may be empty (SeaweedFS shows it for a while) and cannot be removed.
    """
    for name, child in found.children.items():
        if name in (found.layout.kept.name, found.layout.opened.name):
            continue
        if store.capabilities.directories or not child.is_directory:
            return False
        try:
            async for below in walk(store, child.path):
                if not below.is_directory:
                    return False
        except StoreNotFoundError:
            continue
    return True


async def _on_hadoops(store: Store, uri: str, found: JobDirectory, records: int | None) -> Advice:
    job_id, number = found.layout.job_id, records or 0
    clean = command("cleanup", uri, "--job", job_id)
    if found.beside:
        suited = suited_committer(store)
        said = f"a job of Hadoop's {suited.name} committer, {count(number, found.layout.record_kind)}"
        if await suited.newest_hadoop_attempt(store, found.layout) is None:
            # Delayed tasks of a finished job leave the same, so the id alone does not commit it.
            return Advice(f"{said}, or what tasks left of a job that is over; perhaps alive", if_dead=[clean])
    else:
        said = f"a job of Hadoop's manifest committer, {count(number, 'task manifest')}"
        if not can_be_joined(found):
            said = f"{said}; perhaps alive, in a layout of an older Hadoop: only that can commit it"
            return Advice(said, if_dead=[clean])
        number_of_attempt = max(int(name) for name in found.children if name.isdecimal())
        if not await is_hadoops(store, layout_for(store, found.layout.destination, job_id, number_of_attempt)):
            # Delayed tasks leave the same, so the command line has to say that the job is Hadoop's.
            by_attempt = ("--job-attempt", str(number_of_attempt), "--tasks", "N")
            joining = [command("commit", uri, job_id, *by_attempt)] if number else []
            return Advice(f"{said}; perhaps alive", if_dead=[*joining, clean])
    return Advice(f"{said}; perhaps alive", if_dead=ways_out(uri, job_id, "listing", number))


# -- jobs of Hadoop's FileOutputCommitter ----------------------------------------------------------------------------

_TASK: Final = re.compile(r"task_(\d+_\d+)_([a-z])_\d+")


def tasks_by_job(names: Iterable[str]) -> Counter[str]:
    """Counts the committed tasks of each job by the names in a job attempt's directory."""
    return Counter(f"job_{found[1]}" for found in map(_TASK.fullmatch, names) if found)


def _ids_with_reducers(names: Iterable[str]) -> set[str]:
    """Returns the ids of jobs with a committed task that is no map task: Python refuses to commit these."""
    return {f"job_{found[1]}" for found in map(_TASK.fullmatch, names) if found and found[2] != "m"}


def can_commit(store: Store) -> bool:
    """Reports whether Python can commit such a job on this store."""
    return all(getattr(store.capabilities, ability) for ability in committer_for("file-v1").needs)


async def refuse_classic(session: Session, uri: str, job_id: str) -> None:
    """Refuses a job of Hadoop's FileOutputCommitter, or the directory that all of its jobs share.

    Used by commands that found no job; two listings, and one per further job attempt. The UnsupportedError tells
    how Python commits the job, if it can.
    """
    destination = StorePath.of(uri)
    async with session.store(destination) as store:
        try:
            attempts = await _names_by_attempt(store, destination / TEMPORARY)
        except StoreError:
            return
    tasks = {path: tasks_by_job(names) for path, names in attempts.items()}
    shared = next((path for path, counted in tasks.items() if path.name == job_id and counted), None)
    with_reducers = _ids_with_reducers(name for names in attempts.values() for name in names)
    one, *others = sorted(tasks[shared], key=lambda job: (job in with_reducers, job)) if shared else [job_id]
    # A later job attempt takes over the tasks of an earlier one.
    newest = next((path for path, counted in tasks.items() if one in counted), None)
    if newest is None:
        return
    if shared:
        more = f" and {len(others):,} more" if others else ""
        what = f"{job_id} is no job, but a directory that all jobs of Hadoop's FileOutputCommitter share"
        what = f"{what}, with the output of {one}{more}"
    else:
        committed = count(tasks[newest][one], "task")
        what = f"job {one} is one of Hadoop's FileOutputCommitter, of which {committed} committed"
    step = (
        f"commit it in Python, N being the number of its tasks: `{_in_python(session, uri, one, newest)}` "
        f"({page('recovery.md#a-job-that-hadoop-set-up')})"
    )
    if one in with_reducers:
        step = "run the job again: it has reducers, whose output only Hadoop could commit"
    elif not can_commit(store):
        step = "run the job again: on this store only Hadoop could commit it"
    raise UnsupportedError(
        f"{what}; no command ends such a job",
        operation="command line",
        path=shared or newest,
        next_step=f"if its driver is dead, {step}",
    )


async def _names_by_attempt(store: Store, temporary: StorePath) -> dict[StorePath, list[str]]:
    """Returns the names in each job attempt's directory, newest first."""
    children = [child.path async for child in store.list(temporary) if child.is_directory]
    attempts = sorted((path for path in children if path.name.isdecimal()), key=lambda path: -int(path.name))
    return {path: [child.path.name async for child in store.list(path)] for path in attempts}


def _in_python(session: Session, uri: str, job_id: str, attempt: StorePath) -> str:
    storage = ", storage_options={...}" if session.storage else ""
    spec = f"committer.JobSpec.for_hadoop({uri!r}, {job_id!r}, {int(attempt.name)}, committer='file-v1')"
    return f"with committer.sync.attach_job({spec}{storage}) as job: job.commit(tasks=N)"
