"""Stages before the decision: a driver declares what it will commit, then which directories that affects.

An intent lets a recovery continue with the same winners. By entries and scopes jobs that write the same directories
exclude each other: each driver that is about to decide creates an entry with its job's scope, then lists the entries
of all jobs. Of two jobs whose scopes meet, at least one sees the other and withdraws. An entry counts while its job is
live, since other jobs cannot tell which of its drivers may still act. So it is deleted after the job's directory, or
when its driver withdraws before it sent a decision.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from committer.advice import COMMIT_AGAIN, call
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationBusyError,
    JobNotFoundError,
    RecordError,
    StoreError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.flow.together import both_in_full
from committer.flow.workers import run_workers
from committer.layout import WORK, DirectoryName, JobLayout, is_job_id
from committer.options.config import CommitterConfig
from committer.records.job_state import DecisionHead, Entry, Intent, encode_record
from committer.stages.base import Stage, StageContext
from committer.stages.durability import sync_directories
from committer.stages.names import NameFolding, is_absolute
from committer.stages.state.job_directory import look_at_job
from committer.stages.state.job_liveness import job_vanished
from committer.stages.state.own_records import put_record, read_record
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import children_of, exists

MOST_NAMES: Final = 10_000
"""The longest list of directories in an entry; a longer one is coarsened to parents."""


class Scope(NamedTuple):
    """Directories that a job writes to, and subtrees that it replaces or needs empty; relative (``""``) or absolute."""

    writes: tuple[str, ...]
    replaces: tuple[str, ...] = ()

    def meets(self, other: Scope, fold: Callable[[str], str]) -> bool:
        """Whether a subtree that one scope replaces equals, contains or lies below a directory of the other."""
        return _touch(self.replaces, (*other.writes, *other.replaces), fold) or _touch(
            other.replaces, self.writes, fold
        )


EVERYTHING: Final = Scope(("", "/"), ("", "/"))
"""The scope of a job whose entry cannot be read."""


_TOPS: Final = frozenset(("", "/"))


def scope_of(config: CommitterConfig, written: Iterable[str], folding: NameFolding) -> Scope:
    """Returns the scope of a job that writes into `written`."""
    # A job without files may still write `_SUCCESS`, so it counts as writing into the destination. A job that refuses
    # used directories counts as replacing them: no other job may fill them between its check and its decision.
    given = sorted(written)
    names = given or [""]
    replaces = list[str]()
    if config.conflict_mode == "replace":
        replaces = superseded_scope(config, given, folding)
    elif config.refuses_used_destination:
        replaces = ["", *filter(is_absolute, names)]
    elif config.conflict_mode == "fail":
        replaces = list(filter(None, given)) if config.superseded_scope == "partitions" else given
    if config.existing_target == "replace":
        replaces = [*replaces, *given]
    return Scope(tuple(coarsened(names)), tuple(coarsened(replaces)))


def superseded_scope(config: CommitterConfig, written: list[str], folding: NameFolding) -> list[str]:
    """Returns the directories whose subtrees are superseded by a job that replaces and writes into `written`."""
    if config.replaces_destination:
        return ["", *filter(is_absolute, {*written, *config.superseded_directories})]
    if config.superseded_directories:
        named = {folding.fold(name): name for name in config.superseded_directories}
        # Directories below them that are written to are named, too: a link on the path to one is followed.
        return sorted({*named.values(), *filter(config.supersedes, written)})
    return list(filter(None, written)) if config.superseded_scope == "partitions" else written


def coarsened(names: Iterable[str], most: int = MOST_NAMES) -> list[str]:
    """Returns the names sorted, the deepest ones replaced by their parents until there are at most `most`."""
    found = set(names)
    while len(found) > most and not found <= _TOPS:
        depth = max(name.count("/") for name in found if name not in _TOPS)
        found = {_parent(name) if name not in _TOPS and name.count("/") == depth else name for name in found}
    return sorted(found)


def _parent(name: str) -> str:
    return name.rpartition("/")[0] or ("/" if is_absolute(name) else "")


def _touch(subtrees: tuple[str, ...], directories: tuple[str, ...], fold: Callable[[str], str]) -> bool:
    """Whether a subtree equals, contains or lies below a directory, in O(n log n)."""
    keys = sorted({_key(name, fold) for name in directories})
    known = set(keys)
    for name in subtrees:
        key = _key(name, fold)
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at].startswith(key):
            return True
        if any(key[: end + 1] in known for end, letter in enumerate(key) if letter == "/"):
            return True
    return False


def _key(name: str, fold: Callable[[str], str]) -> str:
    """Returns a text that has those of all parent directories as prefixes; relative names begin with ``./``."""
    name = name if is_absolute(name) else f"./{name}"
    return f"{fold(name).rstrip('/')}/"


_TRIES = 5
_MOST_NAMED = 10
_UNREADABLE = (RecordError, StoreIsADirectoryError)


class Listed(NamedTuple):
    """An entry from a listing; `setup` is empty for a Hadoop job, `replaces` whether its scope replaces subtrees."""

    status: FileStatus
    job_id: str
    setup: str
    replaces: bool


async def make_directory_of_entries(context: StageContext) -> None:
    """Creates the directory of all entries where directories are real: one call."""
    layout = context.layout
    if context.store.capabilities.directories and await context.store.make_directory(layout.entries, parents=False):
        await sync_directories(context, [layout.temporary])


async def refuse_neighbours(context: StageContext, scope: Scope) -> None:
    """Raises `DestinationBusyError` if the scope of another live job meets this one: one listing."""
    # One call more for each entry that may meet, 3 for one that does. A `StoreNotFoundError` means that this
    # driver's entry is gone: another process deleted all of `_temporary`.
    layout, store = context.layout, context.store
    own, others = layout.entry(context.driver, replaces=bool(scope.replaces)), list[Listed]()
    found = False
    async for listed in _listed(store, layout):
        found = found or listed.status.path == own
        if (listed.job_id, listed.setup) == (layout.job_id, layout.setup_name):
            context.known.entries.add(listed.status.path)
        elif scope.replaces or listed.replaces:
            others.append(listed)
    if not found:
        raise StoreNotFoundError("an entry vanished", operation="list_entries", path=own)
    busy: dict[str, _BlockingJob] = {}
    fold = NameFolding(store.capabilities).fold

    async def look(listed: Listed) -> None:
        error: CommitterError | None = None
        try:
            entry = await read_record(store, listed.status.path, Entry)
            if entry is None:
                return
            other = Scope(entry.writes, entry.replaces)
        except _UNREADABLE as unreadable:
            other, error = EVERYTHING, unreadable
        if not scope.meets(other, fold):
            return
        try:
            if not await _is_live(store, layout_of_owner(context, listed.job_id, listed.setup)):
                return
        except _UNREADABLE as unreadable:
            error = unreadable
        what = "replaces data there" if listed.replaces else "is being committed there"
        busy[listed.job_id] = _BlockingJob(f"may be committed there: {error.message}" if error else what, error)

    await run_workers(others, look, workers=context.config.io_concurrency, operation="look_at_entries")
    if busy:
        raise _busy(context, busy)


class _BlockingJob(NamedTuple):
    what: str
    error: CommitterError | None = None


_OR_WAIT: Final = " (with busy_timeout in its config a commit waits for that by itself)"


def _busy(context: StageContext, busy: dict[str, _BlockingJob]) -> DestinationBusyError:
    destination, job_id, owners = str(context.layout.destination), context.layout.job_id, sorted(busy)
    first = busy[owners[0]].what
    ends = (
        f"{call('recover', destination, owners[0])} finishes {'it' if len(owners) == 1 else 'the first'}, and "
        f"{call('recover', destination, owners[0], rollback=True)} aborts it or rolls it back"
    )
    if len(owners) == 1:
        who = f"job {owners[0]} {first}"
        step = f"{COMMIT_AGAIN} once job {owners[0]} has ended{_OR_WAIT}; if its driver is dead, {ends}"
    else:
        more = f" and {len(owners) - _MOST_NAMED} more" if len(owners) > _MOST_NAMED else ""
        who = f"jobs {', '.join(owners[:_MOST_NAMED])}{more} are in the way, the first {first}"
        step = f"{COMMIT_AGAIN} once each of these jobs has ended{_OR_WAIT}; if the driver of one is dead, {ends}"
    return DestinationBusyError(
        f"job {job_id} cannot commit into {destination} now: {who}",
        owners=owners,
        operation="job_stage_declare_scope",
        path=destination,
        next_step=step,
        causes=[one.error for one in busy.values() if one.error is not None],
    )


async def drop_entries(context: StageContext) -> None:
    """Deletes the entries of a job that is over, and the directory of all entries if it is empty."""
    # One call per entry; for a driver that created none, one listing, and 2 to 4 calls for each entry of
    # another setup of the id. One more where directories are real.
    layout, store = context.layout, context.store
    paths = set(context.known.entries)
    if not paths:
        async for listed in _listed(store, layout):
            own = (listed.job_id, listed.setup) == (layout.job_id, layout.setup_name)
            if own or (
                listed.job_id == layout.job_id
                and await _is_orphan(store, layout_of_owner(context, listed.job_id, listed.setup))
            ):
                paths.add(listed.status.path)
    for path in sorted(paths, key=str):
        await store.delete_file(path)
    context.known.entries.clear()
    await _remove_directory(store, layout)


async def remove_orphans(
    store: Store, layout_of: Callable[[str, str], JobLayout], *, before: float, job_id: str | None = None
) -> None:
    """Deletes entries older than `before` (store's clock, seconds since the epoch) whose jobs are gone: one listing."""
    # With `job_id` it deletes those of that job instead, of any age. Up to 3 calls per entry. An entry that
    # could not be deleted stays for the next cleanup and blocks no job.
    layout = layout_of("-", "")
    with suppress(StoreError):
        async for listed in _listed(store, layout):
            modified = listed.status.modified
            old = modified is not None and modified < before
            meant = old if job_id is None else listed.job_id == job_id
            if meant and await _is_orphan(store, layout_of(listed.job_id, listed.setup)):
                await store.delete_file(listed.status.path)
        await _remove_directory(store, layout)


async def owners_of_entries(store: Store, layout_of: Callable[[str, str], JobLayout]) -> dict[str, bool]:
    """Returns the jobs with entries at a destination, and whether each is live: one listing, up to 3 calls each."""
    found: dict[str, bool] = {}
    async for listed in _listed(store, layout_of("-", "")):
        orphan = await _is_orphan(store, layout_of(listed.job_id, listed.setup))
        found[listed.job_id] = found.get(listed.job_id, False) or not orphan
    return found


async def _listed(store: Store, layout: JobLayout) -> AsyncIterator[Listed]:
    for child in await children_of(store, layout.entries):
        owner, separator, rest = child.path.name.rpartition("~")
        job_id, setup, suffix = DirectoryName.of(owner)
        kind = rest.rpartition(".")[2]
        if separator and kind in ("append", "replace") and is_job_id(job_id) and not suffix:
            yield Listed(child, job_id, setup, kind == "replace")


def layout_of_owner(context: StageContext, job_id: str, setup: str) -> JobLayout:
    """Returns the layout of a job that has an entry at a job's destination."""
    kind = JobLayout if setup else context.listed_layout
    layout = context.layout
    return kind(layout.destination, job_id, layout.job_attempt, setup=setup)


async def _is_orphan(store: Store, layout: JobLayout) -> bool:
    try:
        return not await _is_live(store, layout)
    except CommitterError:
        return False


async def _is_live(store: Store, layout: JobLayout) -> bool:
    """Whether a job can still decide, publish or write `_SUCCESS`: a setup record and no decision to abort exist."""
    # One to 3 calls. The setup record is read last: the decision of a removed job proves nothing. A driver that read
    # `setup` before its deletion can rename what it has in `work`, so the job is live while `work` exists.
    try:
        found = await look_at_job(store, layout)
        decision = await read_record(store, layout.decision, DecisionHead) if found.decided else None
        if decision is not None and decision.decision == "abort":
            return False
        if not layout.setup_name:
            # Hadoop's job setup writes no record.
            return bool(found.attempts or found.set_up or found.decided or found.intents)
        if found.set_up and await exists(store, layout.setup):
            return True
        return store.capabilities.directories and WORK in found.children
    except (JobNotFoundError, StoreNotADirectoryError, ConfigurationError):
        return False


async def _remove_directory(store: Store, layout: JobLayout) -> None:
    if store.capabilities.directories:
        with suppress(StoreError):
            await store.delete_directory(layout.entries, recursive=False)


class DeclareIntent(Stage[Intent, None]):
    """The stage that writes this driver's intent, beside those of the job's other drivers.

    Preconditions: the job exists, undecided.
    Failure modes: `JobNotFoundError` if the job's directory vanished.
    Cost: 1 call, where directories are real 2 at once.
    """

    name = "job_stage_declare_intent"

    async def execute(self, value: Intent) -> None:
        """Writes the intent."""
        context = self.context
        writing = put_record(context, context.layout.intent(context.driver), encode_record(value))
        try:
            # The entry's directory is created here, so that the entry takes one call.
            await both_in_full(writing, make_directory_of_entries(context))
        except StoreNotFoundError as error:
            raise job_vanished(context, self.name, error) from error


class DeclareScope(Stage[Scope, None]):
    """The stage that creates this driver's entry.

    Preconditions: the intent exists; the winning records are loaded.
    Postconditions: the entry exists. It is deleted after the job's directory (`drop_entries`), or by `withdraw`.
    Failure modes: `JobNotFoundError` if the job's directory vanished.
    Cost: 1 call; 2 more if another job has just removed the directory of all entries.
    """

    name = "job_stage_declare_scope"

    async def execute(self, value: Scope) -> None:
        """Creates the entry."""
        context, layout = self.context, self.context.layout
        path = layout.entry(context.driver, replaces=bool(value.replaces))
        entry = Entry(
            job_id=layout.job_id,
            setup=layout.setup_name,
            driver=context.driver,
            created=context.timestamp(),
            writes=value.writes,
            replaces=value.replaces,
        )
        data = encode_record(entry)
        # Added first: the entry is deleted at the end of the job even if the response to this call is lost.
        context.known.entries.add(path)
        try:
            for _try in range(_TRIES - 1):
                with suppress(StoreNotFoundError):
                    await put_record(context, path, data)
                    return
                await make_directory_of_entries(context)
            await put_record(context, path, data)
        except StoreNotFoundError as error:
            raise job_vanished(context, self.name, error) from error


class RefuseNeighbours(Stage[Scope, None]):
    """The stage that refuses to commit beside another job whose scope meets this one.

    Preconditions: this driver's entry exists. Old files, and directories that must be empty, are listed afterwards.
    Postconditions: no other job commits where this one does until its entry is gone.
    Failure modes: `DestinationBusyError` names the owners; the caller withdraws.
    Cost: one listing; one call for each entry that may meet, 3 more for one that does.
    """

    name = "job_stage_refuse_neighbours"

    async def execute(self, value: Scope) -> None:
        """Lists the other jobs' entries."""
        try:
            await refuse_neighbours(self.context, value)
        except StoreNotFoundError as error:
            raise job_vanished(self.context, self.name, error) from error


async def withdraw(context: StageContext) -> None:
    """Deletes the entry and the intent of a driver that sent no decision: no other driver uses these names. 2 calls."""
    for replaces in (False, True):
        entry = context.layout.entry(context.driver, replaces=replaces)
        if entry in context.known.entries:
            await context.store.delete_file(entry)
    await context.store.delete_file(context.layout.intent(context.driver))
