"""What stands below a destination's `_temporary`: this engine's jobs, Hadoop's, and what no job owns any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from committer.cli.output import Answer, Part, copyable, line, styled, table
from committer.cli.session import Session
from committer.cli.text import age, command
from committer.committers.magic.hadoop_jobs import find_magic_attempt
from committer.committers.opened_store import open_store
from committer.committers.registry import DEFAULT_COMMITTER
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobNotFoundError,
    RecordError,
    StoreError,
    StoreLinkError,
    StoreNotFoundError,
)
from committer.flow.workers import run_workers
from committer.layout import MANIFEST_SUFFIX, PENDING_SET_SUFFIX, TEMPORARY, JobLayout, check_job_id
from committer.operations import JobInfo, list_jobs
from committer.paths import StorePath
from committer.readable import count
from committer.records.job_state import Decision, Intent, JobOutcome, ReplaceLock
from committer.spec import JobSpec
from committer.stages.job_directory import JobDirectory, layout_for, look_at_job, refuse_links
from committer.stages.own_records import read_decision, read_intent, read_outcome, read_record, read_setup
from committer.stores.base import Store

Owner: TypeAlias = Literal["committer", "hadoop", "classic", "nobody", "unknown"]
"""Whose a job's directory is: this engine's, that of Hadoop's manifest committer, that of its FileOutputCommitter."""

_KEPT = "committed, and kept for a stream, which knows by it that the batch committed, and removes it later"

_STATE_STYLES = {"committing": "yellow", "unknown": "red", "committed": "green"}


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One directory below `_temporary`.

    Attributes:
        job_id: Its name.
        owner: Whose it is.
        state: As `list_jobs` says; ``unknown`` for what is not this engine's to judge.
        delivery: How task commits reach its driver.
        started: When it was set up.
        updated: When its newest record was written.
        files: Files its decision publishes.
        kept: Whether its outcome is kept for a stream: such a job is not to be removed.
        task_records: Records of task commits of a job that has no decision: of Hadoop's, or of one that no driver began
            to commit.
        attention: What is odd about it; empty for a job that may just be running.
        next_step: A command that settles it; empty when there is none.
        if_dead: Commands of which one settles a job that is still open, once its driver is known to be dead. ``N``
            stands for the number of its tasks, which only the job's author knows.
    """

    job_id: str
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
    if_dead: list[str] = []


class LockRow(msgspec.Struct, frozen=True, kw_only=True):
    """The replace lock.

    Attributes:
        job_id: The job that holds it; empty when its record cannot be read.
        orphan: Whether that job's directory is gone, so that no driver will release it.
        created: When it was taken, as the record says.
    """

    job_id: str
    orphan: bool
    created: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What stands of one job.

    Attributes:
        found: The children of its directory; None when that is gone.
        decision: Its decision, if any.
        outcome: Its outcome, if any.
        intent: The intent of a driver that began to commit it, if any.
        problem: Why one of its records cannot be read; empty when all can.
        is_damaged: Whether that record itself is at fault: not the store, nor a release too old to read it.
        link: A link in the place of one of its directories or records, as the error that names it; None without one.
        absent: Where nothing stands of it, the error that says so, and why none can be there.
    """

    found: JobDirectory | None
    decision: Decision | None = None
    outcome: JobOutcome | None = None
    intent: Intent | None = None
    problem: str = ""
    is_damaged: bool = False
    link: StoreLinkError | None = None
    absent: JobNotFoundError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether its fate is decided: nothing is left to plan."""
        return self.decision is not None or self.outcome is not None

    @property
    def is_kept(self) -> bool:
        """Whether its outcome is kept, so that a stream that repeats the job finds it committed."""
        return self.outcome is not None and self.outcome.kept

    @property
    def words(self) -> str:
        """The job's state in words."""
        if self.link is not None:
            return f"cannot be looked at: {self.link.message}"
        if self.problem:
            return f"cannot be read: {self.problem}"
        if self.outcome is not None:
            last = "" if self.outcome.finished else "; its last steps may be missing"
            last += "; its outcome is kept for a stream" if self.is_kept else ""
            return f"ended: {self.outcome.outcome}{last}"
        if self.decision is not None:
            size = f", {count(self.decision.files, 'file')}" if self.decision.decision == "commit" else ""
            return f"decided ({self.decision.decision}{size}), not ended"
        if self.found is None:
            return "gone: it ended and was cleaned up, or never was here"
        if self.intent is not None:
            return "undecided; a driver began to commit it"
        return "open" if self.found.is_job else "no job: its directory holds no record of one"


async def look_at(store: Store, layout: JobLayout) -> Look:
    """Looks at one job: 1 call, on a local disk 2, and one a record it has."""
    try:
        found = await look_at_job(store, layout)
        await refuse_links(store, found, operation="look_at_job")
    except JobNotFoundError as error:
        return Look(None, absent=error)
    except StoreLinkError as error:
        return Look(JobDirectory(layout, {}), link=error)
    try:
        outcome = await read_outcome(store, layout) if found.ended else None
        decision = await read_decision(store, layout) if found.decided else None
        settled = decision is not None or outcome is not None
        intent = await read_intent(store, found) if found.intents and not settled else None
    except (RecordError, StoreError) as error:
        return _unread(found, error)
    return Look(found, decision, outcome, intent)


def _unread(found: JobDirectory, error: CommitterError) -> Look:
    damaged = isinstance(error, RecordError) and error.field != "version"
    problem = error.message if damaged or not error.next_step else f"{error.message}; {error.next_step}"
    return Look(found, problem=problem, is_damaged=damaged)


async def _look_at_setup(store: Store, look: Look) -> Look:
    """What is wrong with the setup record of a job that could not be told otherwise."""
    if look.found is None or not look.found.set_up or look.problem:
        return look
    try:
        await read_setup(store, look.found.layout)
    except (RecordError, StoreError) as error:
        return _unread(look.found, error)
    return look


async def jobs(session: Session, uri: str) -> Answer:
    """``committer jobs``: the rows, and what needs a person."""
    destination = StorePath.of(uri)
    infos = await list_jobs(destination, storage_options=session.storage, config=session.config)
    store = await open_store(destination, session.storage, session.config)
    try:
        rows: dict[str, JobRow] = {}

        async def survey(info: JobInfo) -> None:
            rows[info.job_id] = await _row(store, uri, destination, info)

        await run_workers(infos, survey, workers=session.config.io_concurrency, operation="jobs")
        lock = await find_lock(store, destination)
    finally:
        await store.close()
    ordered = [rows[info.job_id] for info in infos]
    return Answer({"destination": str(destination), "jobs": ordered, "replace_lock": lock}, _parts(uri, ordered, lock))


async def find_lock(store: Store, destination: StorePath) -> LockRow | None:
    """The replace lock, and whether its owner is gone: 1 or 2 calls."""
    path = JobLayout(destination, "-").replace_lock
    try:
        lock = await read_record(store, path, ReplaceLock)
    except CommitterError as error:
        return LockRow(job_id="", orphan=True) if isinstance(error, RecordError | StoreLinkError) else None
    if lock is None:
        return None
    if not _is_job_id(lock.job_id):
        return LockRow(job_id="", orphan=True)
    try:
        found = await look_at_job(store, JobLayout(destination, lock.job_id))
    except JobNotFoundError:
        return LockRow(job_id=lock.job_id, orphan=True, created=lock.created)
    return LockRow(job_id=lock.job_id, orphan=not found.is_job, created=lock.created)


async def _row(store: Store, uri: str, destination: StorePath, info: JobInfo) -> JobRow:
    look = await look_at(store, layout_for(store, destination, info.job_id))
    if info.state == "unknown":
        look = await _look_at_setup(store, look)
    found = look.found
    owner: Owner = "nobody" if look.link is None else "unknown"
    if found is not None and look.link is None:
        owner = await _owner(store, found)
    records = await _task_records(store, found) if found is not None and owner == "hadoop" else None
    attention, next_step = _advice(uri, info, look, owner)
    if_dead: list[str] = []
    if info.state == "open" and owner == "committer" and info.delivery is not None and not next_step:
        records = await _count_records(store, destination, info)
        # Of what no task committed, there is nothing to commit.
        if_dead = ways_out(uri, info.job_id, info.delivery)[-1 if records == 0 else 0 :]
    if found is not None and owner == "hadoop" and not look.is_settled:
        attention = f"a job of Hadoop's manifest committer, {count(records or 0, 'task manifest')}; perhaps alive"
        next_step = command("commit", uri, info.job_id)
        if found.beside:
            attention = f"a job of Hadoop's magic committer, {count(records or 0, 'pending set')}; perhaps alive"
            if await find_magic_attempt(store, found.layout) is None:
                # What late tasks leave of a job that is over looks the same, so its id alone does not commit it.
                next_step = ""
        elif not _can_be_joined(found):
            attention += ", in a layout of an older Hadoop: only that can commit it"
            next_step = ""
    if not _is_job_id(info.job_id):
        attention, next_step = "no job has such a name: look at it, and remove it by hand", ""
    return JobRow(
        job_id=info.job_id,
        owner=owner,
        state=info.state if owner in ("committer", "hadoop") or look.is_settled else "unknown",
        delivery=info.delivery,
        started=info.started,
        updated=info.updated,
        files=info.files,
        kept=look.is_kept,
        task_records=records,
        attention=attention,
        next_step=next_step,
        if_dead=if_dead,
    )


def ways_out(uri: str, job_id: str, delivery: str) -> list[str]:
    """The commands of which one ends a job that no driver began to commit, and whose driver is dead."""
    winners = ["--from-attempts"] if delivery == "message" else []
    return [command("commit", uri, job_id, *winners, "--tasks", "N"), command("abort", uri, job_id)]


async def _count_records(store: Store, destination: StorePath, info: JobInfo) -> int | None:
    """Task commits of an open job of this engine, None where they cannot be told: one listing."""
    spec = JobSpec(
        destination=destination.uri,
        job_id=info.job_id,
        committer=info.committer or DEFAULT_COMMITTER,
        delivery="message" if info.delivery == "message" else "listing",
    )
    layout = spec.layout
    place = layout.attempts if info.delivery == "message" else layout.manifests
    suffix = MANIFEST_SUFFIX if info.delivery == "message" else layout.record_suffix
    try:
        return len([child async for child in store.list(place) if child.path.name.endswith(suffix)])
    except StoreNotFoundError:
        return 0
    except StoreError:
        return None


def _is_job_id(text: str) -> bool:
    """Whether it can name a job: what stands on a store, or in a record, may be anything."""
    try:
        check_job_id(text)
    except ConfigurationError:
        return False
    return True


async def _owner(store: Store, found: JobDirectory) -> Owner:
    if found.set_up:
        return "committer"
    if found.beside and not found.has_records:
        return "hadoop"
    if found.attempts:
        return "hadoop" if await _is_manifest_job(store, found) else "unknown"
    if found.has_records:
        return "committer"
    if found.layout.job_id.isdecimal() and all(
        name == TEMPORARY or name.startswith(("task_", ".")) for name in found.children
    ):
        return "classic"
    if found.intents or not found.is_foreign:
        return "nobody"
    return "unknown"


def _attempts(found: JobDirectory) -> list[StorePath]:
    return [child.path for name, child in found.children.items() if child.is_directory and name.isdecimal()]


async def _is_manifest_job(store: Store, found: JobDirectory) -> bool:
    known = {"manifests", "manifests-frozen", "attempts", "tasks", "tasks-fenced"}
    for attempt in _attempts(found):
        try:
            names = {child.path.name async for child in store.list(attempt)}
        except StoreNotFoundError:
            continue
        if not names or names & known:
            return True
    return False


def _can_be_joined(found: JobDirectory) -> bool:
    """Whether its directories are named as Hadoop 3.4.1 and later do: ``<id>/00``, not ``manifest_<id>`` or ``0``."""
    if found.layout.job_id.startswith("manifest_"):
        return False
    return all(attempt.name == f"{int(attempt.name):02d}" for attempt in _attempts(found))


async def _task_records(store: Store, found: JobDirectory) -> int:
    number = 0
    places = [attempt / "manifests" for attempt in _attempts(found)]
    if found.beside:
        # Only what a commit would load: the newest job attempt's.
        job_attempt = await find_magic_attempt(store, found.layout) or 0
        newest = layout_for(store, found.layout.destination, found.layout.job_id, job_attempt)
        places = [newest.manifests]
    for place in places:
        try:
            async for child in store.list(place):
                known = child.path.name.endswith((MANIFEST_SUFFIX, PENDING_SET_SUFFIX))
                number += known and not child.path.name.startswith(".")
        except StoreError:
            continue
    return number


def _advice(uri: str, info: JobInfo, look: Look, owner: Owner) -> tuple[str, str]:
    """What is odd about a job, and the command that settles it."""
    recover = command("recover", uri, info.job_id)
    clean = command("cleanup", uri, "--job", info.job_id)
    if look.found is None:
        return "it ended while it was looked at", ""
    if look.link is not None:
        return f"{look.link.message}; {look.link.next_step}", ""
    if look.problem:
        lost = ": what it did not publish is lost when it is removed" if look.is_damaged else ""
        return f"a record cannot be read: {look.problem}{lost}", f"{clean} --force" if look.is_damaged else ""
    if look.outcome is not None:
        if not look.outcome.finished:
            back = ["--rollback"] if look.outcome.outcome == "rolled-back" else []
            last = command("recover", uri, info.job_id, *back)
            return f"{look.outcome.outcome}, but its last steps were not done", last
        if look.is_kept:
            late = set(look.found.children) - {look.found.layout.outcome.name}
            return (f"{_KEPT}; something else stands beside it", recover) if late else (_KEPT, "")
        return f"{look.outcome.outcome}, but not cleaned up", clean
    if look.decision is not None:
        if look.decision.decision == "abort":
            return "aborted, but not cleaned up", clean
        return "decided to be committed, not ended: part of it may be visible", recover
    if owner == "classic":
        return "a job attempt of Hadoop's FileOutputCommitter; perhaps alive", f"{clean} --force"
    if owner == "unknown":
        return "holds no record of a job: another committer's, perhaps alive", f"{clean} --force"
    if owner == "nobody":
        return "an orphan: no setup record, no output", clean
    if look.intent is not None:
        return "a driver began to commit it, and did not decide", recover
    return "", ""


def _parts(uri: str, rows: list[JobRow], lock: LockRow | None) -> list[Part]:
    if not rows and lock is None:
        return [line("no jobs stand below _temporary")]
    now = datetime.now(UTC)
    parts: list[Part] = []
    if rows:
        parts.append(
            table(
                ("job", "owner", "state", "files", "age"),
                [
                    (
                        row.job_id,
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
        if row.attention:
            parts += [line(""), line(row.job_id, "bold"), line(row.attention, indent=2)]
            if row.next_step:
                parts.append(copyable(row.next_step))
        if row.if_dead:
            done = count(row.task_records or 0, "task attempt" if row.delivery == "message" else "task")
            choice = ", one of these, N being the number of the job's tasks" if len(row.if_dead) > 1 else ""
            parts += [
                line(""),
                line(row.job_id, "bold"),
                line(f"open, {done} committed; its driver may be at work. If it is dead{choice}:", indent=2),
                *map(copyable, row.if_dead),
            ]
    if lock is not None:
        parts += [line(""), line("replace lock", "bold")]
        if not lock.job_id:
            path = f"{uri.rstrip('/')}/{TEMPORARY}/.replace-lock"
            parts.append(line(f"its record cannot be read: remove {path} once no job replaces data there", indent=2))
        elif lock.orphan:
            parts.append(line(f"held by job {lock.job_id}, which is gone: no driver will release it", indent=2))
            parts.append(copyable(command("cleanup", uri, "--job", lock.job_id)))
        else:
            parts.append(line(f"held by job {lock.job_id}", indent=2))
    return parts
