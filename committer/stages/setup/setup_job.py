"""Job setup: creates the job's directory under a unique name and opens the job."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, Literal

import msgspec

from committer.advice import call, page
from committer.errors import (
    CommitterError,
    ConfigurationError,
    JobExistsError,
    JobNotFoundError,
    JobStateError,
    RecordError,
    StoreCrossDeviceError,
    StoreError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    UnsupportedError,
)
from committer.events import names
from committer.file_names import root_of
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.flow.together import both, together
from committer.layout import DirectoryName, JobLayout
from committer.logs import audit
from committer.paths import StorePath
from committer.records.job_state import JobOpened, JobSetup, decode_record, encode_record, limit_of
from committer.spec import JobSpec
from committer.stages.base import JobKnowledge, Stage, StageContext
from committer.stages.decide.commit_state import looking_again
from committer.stages.durability import missing_directories, sync_directories
from committer.stages.remove.removal import remove_failed_setup
from committer.stages.setup.destination_file import enclose_file, file_in_the_way, refuse_object
from committer.stages.state.job_directory import JobState, list_job_directories, look_at_job
from committer.stages.state.job_liveness import has_setup, may_vanish
from committer.stages.state.own_records import Drivers, is_open, read_drivers, read_setup, read_state
from committer.stores.helpers import children_of, create_exclusively, exists, status_or_none

SETUP_BYTES: Final = 10
"""Random bytes of a setup's nonce: two of a million setups of one id collide with a chance of 1 in 10^12."""

_TRIES: Final = 5


class SetupJob(Stage[None, None]):
    """The stage that creates a job's directory under a unique name and opens the job, unless one of its id is live.

    A job is live while its setup record exists and its `opened` record says open. Of two concurrent setups of an id,
    the listing of the later one shows the other's directory: either that job is open already and the later is
    refused, or both try to create the same `opened` exclusively, as "open" or "closed". So at most one job of an id
    is open. The directory of a dead setup is closed and blocks nothing.

    Where directories are renamed in one step, the directory is built under another name, then renamed: no delayed
    request of a setup names anything in it. Elsewhere the first request creates the setup record. If its response is
    lost, it may take effect at any time, so the driver abandons the nonce (`abandoned`) and `set_up` draws another.

    Preconditions: the store has the capabilities that the committer needs (`needs`: each with its text for an error).
    Postconditions: the setup record, `opened` and the directories for task attempts and records exist; the store was
    tested to keep identity through a rename. At the destination nothing else changed: an old `_SUCCESS` stays until
    the decision (Hadoop deletes it here). Roots exist, on the destination's volume as far as that can be tested. With
    `durability="fsync"` the name of every created directory survives a power loss, and so do those of the destination
    and its parents.
    Failure modes: a failure or a cancellation removes the directory; if that fails, too, the error says so and a
    later cleanup removes it. `JobExistsError` if a job of the id is live or keeps its outcome.
    Cost: about 11 calls in 7 round trips, besides the probe; 3 or 4 for each other directory of the id; 4 for each
    root. With `durability="fsync"` 6 more, and two for each directory created above `_temporary`.
    Hadoop: ``SetupJobStage``.
    """

    name = statistic = names.JOB_STAGE_SETUP

    def __init__(self, context: StageContext, needs: Mapping[str, str]) -> None:
        super().__init__(context)
        self._needs = needs
        self._began_to_make = False
        self.abandoned: bool = False

    async def execute(self, value: None) -> None:
        """Creates the directory, refuses other live jobs of the id, and opens the job."""
        layout = self.context.layout
        check_store(self.context, self._needs, operation=self.name)
        missing = await missing_directories(self.context, layout.temporary)
        for root in sorted(layout.roots):
            missing += await missing_directories(self.context, layout.target(root))
        try:
            await self._make_directory()
            await self._refuse_others()
            await self._open()
            # The probe may have withdrawn a capability.
            check_store(self.context, self._needs, operation=self.name)
            # Task commits rest on every name above them. Another job may have created `_temporary` just now
            # without having synced it yet.
            made_in = {directory.parent for directory in missing}
            made_in.update((layout.work, layout.job_attempt_directory, layout.job_directory))
            made_in.update((layout.temporary, layout.destination))
            await sync_directories(self.context, made_in)
        except BaseException as error:
            if not self._began_to_make and isinstance(error, CommitterError) and error.outcome == "unchanged":
                # A removal would fail as this call did, and advice about it would hide the cause.
                raise
            removed = await remove_failed_setup(self.context)
            if isinstance(error, CommitterError) and not self.abandoned:
                self._say_what_is_left(error, removed=removed)
            raise

    def _say_what_is_left(self, error: CommitterError, *, removed: bool) -> None:
        job_id = self.context.layout.job_id
        if not removed:
            error.message = f"{error.message}; what was made of job {job_id} until then may still be there"
            cause = error.next_step or "remove the cause"
            again = f"run it again; {self.context.cleanup_call()} removes what is left"
            error.next_step = f"{cause}; then {again}"
        elif error.outcome == "unknown":
            error.outcome = "unchanged"
            error.next_step = error.next_step or f"set the job up again; its id {job_id} is free"

    async def _make_directory(self) -> None:
        # Another job removes an empty `_temporary` at its end.
        await looking_again(self._make_first, after=StoreNotFoundError)

    async def _make_first(self) -> None:
        """Creates the directory with its content, in one step if the store renames directories."""
        layout, store = self.context.layout, self.context.store
        renames = store.capabilities.directories and store.capabilities.atomic_directory_rename
        base = layout.building if renames else layout.job_directory
        await both(self._make_base(base), refuse_object(self.context, self.name))
        await self._fill(base)
        if renames:
            try:
                await self._rename(base)
            except UnsupportedError:
                # A disk shows this only when a rename is tried; from now on the store's capabilities say it, too.
                await store.delete_directory(base, recursive=True)
                await self._make_base(layout.job_directory)
                await self._fill(layout.job_directory)
        if layout.keeps_elsewhere or layout.beside is not None:
            await self.context.holding(layout.manifests).make_directory(layout.manifests, parents=True)

    async def _fill(self, base: StorePath) -> None:
        """Writes the setup record and creates the directories in `base`; the record first if no rename follows."""
        layout, store = self.context.layout, self.context.store
        path, data, durable = base / layout.setup.name, await _setup_record(self.context), self.context.durable
        if base == layout.building:
            # First, since the write may create the directory again that a cleanup removed with all its content.
            await store.put(path, data, durable=durable)
            await self._make_inside(base)
            return
        try:
            # An exclusive put is not repeated after a lost response: a cleanup may have removed the record by then.
            await store.put(path, data, exclusive=True, durable=durable)
        except BaseException as error:
            self.abandoned = isinstance(error, StoreOutcomeUnknownError)
            self._began_to_make = not isinstance(error, CommitterError) or error.outcome != "unchanged"
            raise
        self._began_to_make = True
        await self._make_inside(base)

    async def _make_base(self, base: StorePath) -> None:
        store = self.context.store
        try:
            await store.make_directory(base, parents=True)
            # On other stores make_directory was no call.
            self._began_to_make = store.capabilities.directories
        except (StoreExistsError, StoreNotADirectoryError) as error:
            if not await enclose_file(self.context):
                raise await file_in_the_way(self.context, self.name, error) from error
            await store.make_directory(base, parents=True)

    async def _make_inside(self, base: StorePath) -> None:
        layout, store = self.context.layout, self.context.store
        attempt, work = base / layout.job_attempt_directory.name, base / layout.work.name
        await both(store.make_directory(attempt, parents=False), store.make_directory(work, parents=False))
        places = (
            layout.tasks,
            *layout.records_of(by_listing=self.context.spec.delivery == "listing"),
            layout.superseded,
        )
        inside = [place.relative_to(layout.job_directory) for place in places if place.is_under(layout.job_directory)]
        await together(
            *(store.make_directory(base / name, parents=False) for name in inside),
            store.probe(attempt),
            self.run_workers(sorted(layout.roots), lambda root: self._probe_root(root, attempt)),
        )

    async def _rename(self, base: StorePath) -> None:
        layout, store = self.context.layout, self.context.store

        async def rename() -> None:
            try:
                await store.rename_directory(base, layout.job_directory)
            except (StoreExistsError, StoreNotFoundError):
                # An earlier request, whose response was lost, renamed it.
                if not await exists(store, layout.setup):
                    raise

        await looking_again(rename)

    async def _refuse_others(self) -> None:
        """Closes directories of the id that were never opened; refuses the setup if one is live or has an outcome."""
        layout, store = self.context.layout, self.context.store
        found = await list_job_directories(store, layout.temporary, layout.job_id)
        if DirectoryName(layout.job_id, layout.setup_name, "") not in found:
            self.abandoned = not await exists(store, layout.setup)
            raise StoreError(
                f"{layout.temporary} does not list {layout.unique_id}, which was made there a moment ago: "
                "the store's listings do not show every finished write, or another process deletes there",
                operation=self.name,
                path=layout.job_directory,
                next_step="find out which one; jobs need a store whose listings are strongly consistent",
            )
        if layout.beside is not None:
            # A Hadoop job of the same id keeps its data there.
            beside = await status_or_none(store, layout.destination / f"{layout.beside_prefix}{layout.job_id}")
            if beside is not None and beside.is_directory:
                raise exists_error(layout, "open", operation=self.name)
        for other in found:
            if other.suffix or other.setup == layout.setup_name:
                continue
            state = await self._state_of(other)
            if state is not None:
                raise await self._exists(other, state)

    async def _exists(self, other: DirectoryName, state: JobState) -> JobExistsError:
        """Builds the error for an id in use, with the state of that job: up to 4 calls, and one for each intent."""
        layout, store = JobLayout(self.context.layout.destination, other.job_id, setup=other.setup), self.context.store
        drivers: Drivers = []
        # If the store fails, or the job was removed meanwhile, the error has no more than this state.
        with suppress(CommitterError):
            found = await look_at_job(store, layout)
            try:
                state, _files, _kept = await read_state(store, found)
                if found.is_foreign or not found.children:
                    state = "unknown"
                drivers = await read_drivers(store, found) if state == "open" else []
            except RecordError as error:
                return JobExistsError(
                    f"job id {layout.job_id} is in use at {layout.destination}, by a job with a record that cannot be "
                    f"read: {error.message}",
                    state="committed" if state == "committed" else "unknown",
                    operation=self.name,
                    path=error.path or layout.job_directory,
                    next_step="nothing is left to run" if state == "committed" else error.next_step,
                )
        return exists_error(layout, state, operation=self.name, drivers=drivers)

    async def _state_of(self, other: DirectoryName) -> Literal["open", "committed"] | None:
        """Returns the state of another job of the id; None if it is over, or was never opened and is closed now."""
        context = self.context
        store = context.store
        if not other.setup:
            # A job of Hadoop's, or remains of one.
            return "open"
        layout = JobLayout(context.layout.destination, other.job_id, setup=other.setup)
        children = {child.path.name for child in await children_of(store, layout.job_directory)}
        for _look in range(_TRIES):
            opened = await is_open(store, layout) if layout.opened.name in children else None
            decided = {layout.decision.name, layout.outcome.name, layout.kept.name} & children
            if layout.setup.name not in children and not decided:
                # A setup that writes its record from now on lists afterwards, and sees this job's directory.
                return None
            if opened is None and not decided:
                try:
                    opened = (await create_opened(context, layout, "closed")).state == "open"
                except StoreNotFoundError:
                    return None
            stands = layout.setup.name in children and await exists(store, layout.setup)
            if stands == (layout.setup.name in children):
                ended = {layout.decision.name, layout.outcome.name} <= children
                if layout.kept.name in children and not (stands and ended):
                    return "committed"
                return "open" if stands and opened else None
            # It was removed after the listing; it may keep its outcome.
            children = {child.path.name for child in await children_of(store, layout.job_directory)}
        return "open"

    async def _open(self) -> None:
        context, layout = self.context, self.context.layout
        temporary = layout.temporary_of(layout.opened, context.driver)
        try:
            opened = (await create_opened(context, layout, "open", temporary)).driver == context.driver
        except StoreNotFoundError:
            opened = False
        if opened and may_vanish(context):
            opened = await has_setup(context)
        if not opened:
            self.abandoned = True
            raise JobNotFoundError(
                f"job {layout.job_id} was ended while it was set up",
                operation=self.name,
                path=layout.setup,
                next_step="find out who ended it, then set it up again",
            )
        context.known.is_open = True

    async def _probe_root(self, root: str, attempt: StorePath) -> None:
        """Creates a root outside the destination and tries to rename an empty directory into it."""
        # Neither name nor device (bind mounts) tells whether it is on another volume. No reader may find a
        # file there before the decision. Where a store cannot rename directories, publishing finds out, and
        # the job is rolled back.
        layout, store = self.context.layout, self.context.store
        directory = layout.target(root)
        probe = layout.probe_in(root)
        source = attempt / f"{probe.name}-{self.context.runtime.nonce()}"
        try:
            await store.make_directory(directory, parents=True)
            if not store.capabilities.atomic_directory_rename:
                return
            await store.make_directory(source, parents=False)
            try:
                await store.rename_directory(source, probe)
            except (StoreOutcomeUnknownError, UnsupportedError, StoreExistsError):
                # Publishing will find out. An existing probe is that of a job of this id that died in its setup.
                pass
            finally:
                await run_shielded(lambda: store.delete_directory(probe, recursive=False), bound_s=UNDO_BOUND_S)
        except StoreCrossDeviceError as error:
            raise UnsupportedError(
                f"absolute_roots: no file of job {layout.job_id} can be renamed into {directory}: it is on another "
                f"volume than the destination {layout.destination}",
                operation=self.name,
                path=directory,
                next_step="write there with a job of its own, whose destination it is",
                causes=[error],
            ) from error
        except (StoreExistsError, StoreNotADirectoryError) as error:
            raise StoreNotADirectoryError(
                f"a file exists where a directory must be: {error.path or directory}",
                operation=self.name,
                path=directory,
                next_step="name another root, or remove the file",
                causes=[error],
            ) from error


async def create_opened(
    context: StageContext, layout: JobLayout, state: Literal["open", "closed"], temporary: StorePath | None = None
) -> JobOpened:
    """Creates the record that a job of the id was opened, or closed; returns the existing one, if any. 1 to 3 calls."""
    wanted = JobOpened(state=state, driver=context.driver, created=context.timestamp())
    found = await create_exclusively(
        context.store,
        layout.opened,
        encode_record(wanted),
        temporary=temporary,
        durable=context.durable,
        limit=limit_of(JobOpened),
    )
    return decode_record(found, JobOpened, source=str(layout.opened))


async def _setup_record(context: StageContext) -> bytes:
    process = await context.process()
    setup = JobSetup(spec=context.spec, created=context.timestamp(), owner=context.driver, process=process)
    return encode_record(setup)


async def set_up(
    context: StageContext, needs: Mapping[str, str], known_as: Callable[[StageContext, JobSpec], StageContext]
) -> StageContext:
    """Sets a job up and returns its context, with another nonce if one is abandoned."""
    # The errors are those of `SetupJob`, and `ConfigurationError` for a superseded directory outside all roots.
    _refuse_superseded_directories(context.layout, context.config.superseded_directories)
    for tries_left in reversed(range(_TRIES)):
        stage = SetupJob(context, needs)
        try:
            await stage.run(None)
        except CommitterError:
            if not (tries_left and stage.abandoned):
                raise
        else:
            context.known.is_probed = True
            return context
        spec = msgspec.structs.replace(context.spec, setup=context.runtime.nonce(SETUP_BYTES))
        context = replace(known_as(context, spec), known=JobKnowledge())
    raise AssertionError(context)


def exists_error(layout: JobLayout, state: JobState, *, operation: str, drivers: Drivers = ()) -> JobExistsError:
    """Builds the error for a job id that is in use; `drivers` set that job up or began to commit it, if it is open."""
    job, place = f"job {layout.job_id}", str(layout.destination)
    settle, forced = call("settle", place, layout.job_id), call("settle", place, layout.job_id, force=True)
    if state == "committed":
        how = f"{job} committed at {place}"
        step = f"nothing is left to run: {settle} returns its report"
    elif state == "committing":
        how = f"{job} is decided to be committed at {place}, and not ended"
        step = f"{settle} finishes it, at any time, and returns its report; then nothing is left to run"
    elif state in ("rolled-back", "aborted"):
        how = f"{job} is {state} at {place}, and what it left is not removed"
        step = f"{settle} removes it; then run the job again"
    elif state == "unknown":
        how = f"job id {layout.job_id} is in use at {place}: a directory of that name holds no record of a job"
        remove = call("cleanup", place, job_id=layout.job_id, force=True)
        step = f"it may be another committer's: choose another job id, or delete it once no job uses it, by {remove}"
    else:
        in_use, settling = f"job id {layout.job_id} is in use at {place}", operation == "settle"
        how, step = _of_open(in_use, drivers, settle, forced, settling=settling)
    return JobExistsError(how, state=state, operation=operation, path=layout.job_directory, next_step=step)


def _of_open(in_use: str, drivers: Drivers, settle: str, forced: str, *, settling: bool) -> tuple[str, str]:
    states = {state: driver for driver, state in drivers}
    join = "join the job with attach_job or open_task; for other work choose another job id"
    if settling:
        join = f"{forced} aborts the job all the same: its driver then fails, and publishes nothing"
    if (running := states.get("running")) is not None:
        if running.pid == os.getpid():
            # As in a notebook whose cell runs twice.
            step = f"commit or abort that job; if no variable holds it any more, {forced} aborts it"
            return f"{in_use}: its driver runs, and is this process", step
        return f"{in_use}: its driver runs, {running.words}", f"wait until that process has ended, or {join}"
    if (dead := states.get("dead")) is not None and len(states) == 1:
        return f"{in_use}: its driver is dead, {dead.words}", f"{settle} removes what it left; then run the job again"
    unknown = states.get("unknown")
    who = f": whether its driver runs is not known here, {unknown.words}" if unknown is not None else ""
    step = (
        f"if its driver runs, wait, or {join}; if it is dead, {forced} removes what it left, and {page('recovery.md')}"
    )
    return f"{in_use}{who}", f"{step} says how its tasks' output is committed instead"


async def join_hadoop_job(
    context: StageContext, needs: Mapping[str, str], stands: Callable[[], Awaitable[bool]]
) -> bool:
    """Claims Hadoop's job by a setup record, or finishes an earlier claim; returns False if the job does not exist.

    `context` is that of the claimed job; `stands` looks for Hadoop's.
    """
    layout, spec = context.layout, context.spec
    wanted = spec.job_attempt, spec.committer, spec.records_at
    for _try in range(2):
        with suppress(StoreNotFoundError, StoreNotADirectoryError):
            found = (await read_setup(context.store, layout)).spec
            if (found.job_attempt, found.committer, found.records_at) != wanted:
                raise JobStateError(
                    f"job {layout.job_id} was joined before, as job attempt {found.job_attempt} with the committer "
                    f"{found.committer} and its task records at {found.records_at or 'the destination'}",
                    operation="attach_job",
                    path=layout.setup,
                    next_step="join it as that, or abort it; or look whether the job id, the place or the job attempt "
                    "is another",
                )
            state = await look_at_job(context.store, layout)
            if not (state.decided or state.ended) and state.set_up:
                # The driver that claimed it may have died before it made the directories.
                with suppress(StoreNotFoundError):
                    await _make_claimed(context)
            return True
        if not await stands():
            return False
        # Another driver may claim it first.
        with suppress(JobExistsError), audit(ji=layout.job_id):
            await _claim_hadoop_job(context, needs)
            return True
    return False


async def _claim_hadoop_job(context: StageContext, needs: Mapping[str, str]) -> None:
    """Adds a setup record and directories to the directory of a job that Hadoop set up: some 10 calls, repeatable."""
    # If another driver added its record first (`JobExistsError`), this one created directories at most.
    layout, store = context.layout, context.store
    check_store(context, needs, operation="attach_job")
    record = await _setup_record(context)
    await store.make_directory(layout.job_directory, parents=True)
    found = await create_exclusively(store, layout.setup, record, durable=context.durable, limit=limit_of(JobSetup))
    await _make_claimed(context)
    if found != record:
        raise exists_error(layout, "open", operation="attach_job")


async def _make_claimed(context: StageContext) -> None:
    layout, store = context.layout, context.store
    records = [place for place in layout.records_of(by_listing=True) if place.is_under(layout.job_directory)]
    places = (layout.job_attempt_directory, layout.tasks, layout.superseded, *records)
    for place in places:
        await store.make_directory(place, parents=False)
    await sync_directories(context, (place.parent for place in places))
    await store.probe(layout.job_attempt_directory)


def _refuse_superseded_directories(layout: JobLayout, names: Iterable[str]) -> None:
    for name in names:
        if name.startswith("/") and root_of(f"{name}/", layout.roots) is None:
            raise ConfigurationError(
                f"superseded_directories: {layout.target(name)} lies outside the destination {layout.destination}, and"
                " below none of absolute_roots",
                operation="open_job",
                path=layout.target(name),
                next_step="add a directory above it to absolute_roots, or remove it from superseded_directories",
            )


def check_store(context: StageContext, needs: Mapping[str, str], *, operation: str) -> None:
    """Raises `UnsupportedError` if the store cannot serve the job's committer; no call. `needs`: as for `SetupJob`."""
    can, spec = context.store.capabilities, context.spec
    missing = [text for ability, text in needs.items() if not getattr(can, ability)]
    if not missing and can.deletes_by_name and not (spec.config.unique_names and spec.setup):
        raise UnsupportedError(
            f"files of job {spec.job_id} may have names that other jobs use, and this service deletes whatever has a"
            " name: a late delete could take another job's file",
            operation=operation,
            path=context.layout.destination,
            next_step="set the job up with committer.open_job, which gives each file a name of its own",
        )
    if missing:
        step = "leave `committer` out, which takes the one that suits the store, or write to another store"
        if missing == [needs.get("spares_others")]:
            step = "give the storage option service ('minio' or 'oss') if it is one of them, or write to another store"
        raise UnsupportedError(
            f"committer {context.spec.committer!r} needs a store that can {' and '.join(missing)}; "
            f"{context.store.scheme}:// cannot",
            operation=operation,
            path=context.layout.destination,
            next_step=step,
        )
