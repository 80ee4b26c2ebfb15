"""Loading what tasks committed: freeze the listing, read each record once, keep what the later stages need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import cast

import msgspec

from committer.errors import (
    CommitterError,
    JobNotFoundError,
    RecordError,
    StoreExistsError,
    StoreNotFoundError,
    TaskError,
    TaskMissingError,
    UnsupportedError,
)
from committer.events import Statistics, names
from committer.flow.budget import Budget
from committer.flow.repeats import Repeats
from committer.flow.workers import run_workers
from committer.layout import MANIFEST_SUFFIX
from committer.paths import StorePath
from committer.records.job_state import Winner
from committer.records.manifest import TaskManifest, decode_task_manifest, relative_entries
from committer.records.task_commit import TaskCommit, digest_of
from committer.stages.base import Stage, StageContext
from committer.stages.identity import may_be_file_of
from committer.stages.names import NameFolding, name_problems, with_ancestors
from committer.stores.base import SupportsLinks
from committer.stores.helpers import exists, status_or_none

# What `AbortTask` names a record it has taken while it looks whose it is.
ABORTED_SUFFIX = f"-aborted{MANIFEST_SUFFIX}.tmp"

# Entries kept in memory, some 500 bytes each; a larger job reads its records a second time instead.
ENTRIES_IN_MEMORY = 50_000

# Bytes of records that are read and decoded at once; decoded they take about three times as much.
BYTES_IN_FLIGHT = 8 << 20

# Sentences about names that the store cannot hold; a job can have millions of such names.
MOST_PROBLEMS = 100


class PlannedFile(msgspec.Struct, gc=False):
    """One file to publish, by names that were proved to stay inside.

    Attributes:
        source: Relative to the job's `tasks` directory.
        destination: Relative to the destination; outside it, below a root of the job, an absolute path.
        size: Bytes.
        identity: What proves it is this file; None where the store has none, or until it is looked up.
    """

    source: str
    destination: str
    size: int
    identity: str | None


@dataclass(slots=True)
class RecordRef:
    """A record to load.

    Attributes:
        record: Relative to the job's directory.
        digest: What it must be; None when a listing found it.
        inline: Its bytes when a message carried them.
        length: How many bytes it is said to have; 0 when nobody said.
    """

    record: str
    digest: str | None = None
    inline: bytes | None = None
    length: int = 0


@dataclass(slots=True)
class LoadedRecords:
    """What the winners' records say.

    Attributes:
        winners: One a record, in the order of their names.
        files: File entries in all.
        size: Bytes in all.
        entries: Every entry, or None when there are too many to keep.
        directories: Every directory the files need, by name, with all ancestors (a root of the job is none).
        written: Directories that files go into, with how many.
        identities: Identity by source, for entries whose record has none.
        lacking: Source directories (relative to `tasks`) of entries without identity.
        attempts: Task attempt directories that records speak for, each with its task.
        changed: Sources that are not there any more, or not as their record says, one sentence each.
        unstorable: Destinations that the store cannot hold, one sentence each.
        repeats: Destinations by folded name, for the search for duplicates.
        statistics: The tasks' own, for the job's once these records count: a commit may have to load twice.
    """

    winners: list[Winner] = field(default_factory=list)
    files: int = 0
    size: int = 0
    entries: list[PlannedFile] | None = field(default_factory=list)
    directories: set[str] = field(default_factory=set)
    written: dict[str, int] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)
    attempts: dict[str, str] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    unstorable: list[str] = field(default_factory=list)
    repeats: Repeats = field(default_factory=Repeats)
    statistics: Statistics = field(default_factory=Statistics)


async def freeze_manifests(context: StageContext) -> bool:
    """Puts the listing out of reach of late tasks: `manifests` becomes `manifests-frozen`, one call.

    A job commit that died after the freeze left it done; a `manifests` that stands beside the frozen one was made
    again by a zombie (seen with Hadoop 3.5.0) and is never read. With `durability="fsync"` the new name is synced right
    before the decision, the first that rests on it (`DecideCommit`).

    Returns:
        False where the store cannot rename a directory atomically; nothing was done then.

    Raises:
        JobNotFoundError: Neither directory is there.
    """
    layout, store = context.layout, context.store
    if not store.capabilities.atomic_directory_rename:
        return False
    try:
        # Not looked for first: where it stands already, the rename refuses to replace it.
        await store.rename_directory(layout.manifests, layout.manifests_frozen)
    except UnsupportedError:
        # A disk says so only when it is tried; from now on the store's capabilities say it too. Another machine may
        # have been able to.
        return await exists(store, layout.manifests_frozen)
    except CommitterError as error:
        # A lost answer, or another driver of this job: what counts is what stands there now.
        if await exists(store, layout.manifests_frozen):
            return True
        if isinstance(error, StoreNotFoundError):
            raise JobNotFoundError(
                f"job {layout.job_id} has no manifests directory: it was cleaned up, by itself or by a Hadoop "
                "committer that deletes all of _temporary",
                operation="freeze_manifests",
                path=layout.manifests,
                next_step="run the job again; nothing was published",
            ) from error
        raise
    return True


async def thaw_manifests(context: StageContext) -> None:
    """Undoes the freeze of a job that stays undecided.

    A task that committed meanwhile may have made `manifests` again (Hadoop's do): then its newer records first replace
    the frozen ones, so that at every moment one directory holds a record of every task. One call; 2 more a late record.
    """
    layout, store = context.layout, context.store
    if not store.capabilities.atomic_directory_rename:
        return
    try:
        await store.rename_directory(layout.manifests_frozen, layout.manifests)
        return
    except StoreNotFoundError:
        return
    except StoreExistsError:
        late = [child.path async for child in store.list(layout.manifests)]

    async def bring_in(record: StorePath) -> None:
        await store.rename_file(record, layout.manifests_frozen / record.name, replace=True)

    await run_workers(late, bring_in, workers=context.config.io_concurrency, operation="thaw_manifests")
    await store.delete_directory(layout.manifests, recursive=False)
    await store.rename_directory(layout.manifests_frozen, layout.manifests)


async def list_manifests(context: StageContext, *, frozen: bool) -> list[RecordRef]:
    """The records a listing finds, by name; one call a page. Names that are not a record's are passed over."""
    layout = context.layout
    directory = layout.manifests_frozen if frozen else layout.manifests
    try:
        listed = {child.path: child.size async for child in context.store.list(directory)}
    except StoreNotFoundError:
        if context.store.capabilities.directories:
            raise
        listed = {}
    for path in [path for path in listed if path.name.endswith(ABORTED_SUFFIX)]:
        restored = await _put_back_taken(context, path, directory)
        if restored is not None:
            listed[restored] = listed[path]
    found = sorted(path for path in listed if path.name.endswith(MANIFEST_SUFFIX))
    return [RecordRef(path.relative_to(layout.job_directory), length=listed[path]) for path in found]


async def _put_back_taken(context: StageContext, taken: StorePath, directory: StorePath) -> StorePath | None:
    """Finishes an `AbortTask` that died: puts back a record that it took by mistake, of another attempt of the task."""
    data = await context.store.read(taken, limit=context.config.record_size_limit)
    manifest = decode_task_manifest(data, source=str(taken))
    if taken.name == f"{manifest.taskAttemptID}{ABORTED_SUFFIX}":
        return None
    record = directory / f"{manifest.taskID}{MANIFEST_SUFFIX}"
    try:
        await context.store.rename_file(taken, record)
    except StoreExistsError:
        return None
    return record


class LoadRecords(Stage[list[RecordRef], LoadedRecords]):
    """Reads and checks every record, many at once.

    Preconditions: the records cannot change any more, or their digests are known.
    Postconditions: every entry lies inside, and no link leads its source out (G10); counts agree with the records;
    records that could not be frozen are copied to side files of the decision.
    Failure modes: a `RecordError` names the file and the member; nothing changed.
    Cost: one read a record (none for one that its message carries) and one look at its first file (one more at its
    source directories where links can stand), one write for one that cannot be frozen.
    Memory: entries up to a bound, directories always; 8 MiB of records at a time, or one; names as hashes, on disk
    where they are many.
    Hadoop: ``LoadManifestsStage``.
    """

    name = "job_stage_load_manifests"
    statistic = "job_stage_load_manifests"

    def __init__(self, context: StageContext, *, freeze_copies: bool = False) -> None:
        super().__init__(context)
        self._freeze_copies = freeze_copies
        self._folding = NameFolding(context.store.capabilities)
        self._in_flight = Budget(BYTES_IN_FLIGHT)
        self._prefix_bytes = len(context.layout.destination.path.encode()) + 1

    async def execute(self, value: list[RecordRef]) -> LoadedRecords:
        """Loads all, in any order; the result is in the order of `value`."""
        loaded = LoadedRecords()
        winners: dict[int, Winner] = {}
        try:

            async def load(item: tuple[int, RecordRef]) -> None:
                number, ref = item
                async with self._in_flight.hold(ref.length):
                    winners[number] = await self._load(number, ref, loaded)
                self.context.progress.advance()

            await run_workers(enumerate(value), load, workers=self.context.config.io_concurrency, operation=self.name)
            loaded.winners = [winners[number] for number in range(len(value))]
            _refuse_one_task_twice(loaded.winners)
        except BaseException:
            await loaded.repeats.close()
            raise
        loaded.directories = with_ancestors({*loaded.directories, *loaded.written}, self.context.layout.roots)
        return loaded

    async def _load(self, number: int, ref: RecordRef, loaded: LoadedRecords) -> Winner:
        context = self.context
        data = ref.inline if ref.inline is not None else await _read(context, ref.record)
        digest = digest_of(data)
        if ref.digest is not None and digest != ref.digest:
            raise RecordError(
                "the record is not the one its message or decision names: it was replaced since",
                field="digest",
                path=context.layout.job_directory / ref.record,
                operation=self.name,
                next_step="commit with the message of the attempt that wrote last, or run the task again",
            )
        manifest, files, directories = _decode(context, ref.record, data)
        if manifest.jobId != context.layout.job_id:
            raise RecordError(
                f"the record is one of job {manifest.jobId}, not of {context.layout.job_id}",
                field="jobId",
                path=context.layout.job_directory / ref.record,
                operation=self.name,
                next_step="find out who writes into the job's directory",
            )
        record = ref.record
        if self._freeze_copies:
            # The driver's name keeps two drivers that race for the decision out of each other's files.
            copy = context.layout.plan_file(number, context.driver)
            await context.store.put(copy, data, durable=context.durable)
            record = copy.name
        self._gather(manifest, files, directories, loaded)
        await self._check_sources(record, manifest.taskID, files, loaded)
        size = sum(file.size for file in files)
        loaded.files += len(files)
        loaded.size += size
        await loaded.repeats.add(self._folding.fold_all([file.destination for file in files]))
        statistics = loaded.statistics
        statistics.merge(manifest.statistics(source=record))
        statistics.sample(names.COMMITTER_TASK_MANIFEST_FILE_SIZE, len(data))
        # A record is saved before its task counts as completed, so the tasks' own counts never say it.
        statistics.count(names.COMMITTER_TASKS_COMPLETED)
        return Winner(
            record=record,
            digest=digest,
            length=len(data),
            files=len(files),
            size=size,
            task=manifest.taskID,
            task_attempt=manifest.taskAttemptID,
        )

    async def _check_sources(self, record: str, task: str, files: list[PlannedFile], loaded: LoadedRecords) -> None:
        """Refuses a record whose sources are another record's, and notes one whose attempt was aborted: one call.

        An attempt that commits although it was aborted leaves a record without files, which would be found out only
        half way through publishing; its first file speaks for all.
        """
        attempts = {file.source.partition("/")[0] for file in files}
        if len(attempts) > 1 or not attempts.isdisjoint(loaded.attempts):
            raise RecordError(
                "the record names files of more than one task attempt, or of another record's",
                field="files",
                path=self.context.layout.job_directory / record,
                operation=self.name,
            )
        if not files:
            return
        loaded.attempts.update(dict.fromkeys(attempts, task))
        await refuse_linked_sources(self.context, record, files)
        first = files[0]
        status = await status_or_none(self.context.store, self.context.layout.tasks / first.source)
        if status is None or status.is_directory:
            loaded.changed.append(f"the files of {record} are gone: its task attempt was aborted, or deleted")
        elif not may_be_file_of(status, first):
            loaded.changed.append(f"{first.source} is not the file that {record} speaks of")

    def _gather(
        self, manifest: TaskManifest, files: list[PlannedFile], directories: list[str], loaded: LoadedRecords
    ) -> None:
        written, lacking = loaded.written, loaded.lacking
        for file in files:
            directory = file.destination.rpartition("/")[0]
            written[directory] = written.get(directory, 0) + 1
            if file.identity is None:
                lacking.add(file.source.rpartition("/")[0])
        loaded.directories.update(directories)
        if len(loaded.unstorable) < MOST_PROBLEMS:
            destinations = [file.destination for file in files]
            capabilities = self.context.store.capabilities
            loaded.unstorable += islice(name_problems(destinations, capabilities, self._prefix_bytes), MOST_PROBLEMS)
        if loaded.entries is not None:
            loaded.entries.extend(files)
            if len(loaded.entries) > ENTRIES_IN_MEMORY:
                loaded.entries = None


async def refuse_linked_sources(context: StageContext, record: str, files: list[PlannedFile]) -> None:
    """Refuses a record with a source behind a link: it would move what is not the job's (G10). At most one call.

    Raises:
        RecordError: A directory on the way to a source is a link.
    """
    if not context.store.capabilities.links:
        return
    directories = {file.source.rpartition("/")[0] for file in files}
    link = await cast("SupportsLinks", context.store).find_link(context.layout.tasks, directories)
    if link is not None:
        raise RecordError(
            f"a source lies behind {link}, which is a link: what is there is not the job's to move",
            field="files",
            path=context.layout.job_directory / record,
            operation="job_stage_load_manifests",
            next_step="run the task again, with the files themselves in its directory",
        )


def _refuse_one_task_twice(winners: Iterable[Winner]) -> None:
    seen: dict[str, Winner] = {}
    for winner in winners:
        first = seen.setdefault(winner.task, winner)
        if first is not winner and winner.task:
            raise RecordError(
                f"two records speak for {winner.task}: {first.record} and {winner.record}",
                field="taskID",
                path=winner.record,
                next_step="name one attempt a task",
            )


async def _read(context: StageContext, record: str) -> bytes:
    return await context.store.read(context.layout.job_directory / record, limit=context.config.record_size_limit)


def _decode(context: StageContext, record: str, data: bytes) -> tuple[TaskManifest, list[PlannedFile], list[str]]:
    layout = context.layout
    source = str(layout.job_directory / record)
    with context.statistics.timed(names.OP_LOAD_MANIFEST):
        manifest = decode_task_manifest(data, source=source, names_checked=False)
        files, directories = relative_entries(
            manifest, destination=layout.destination, source_root=layout.tasks, source=source, roots=layout.roots
        )
    return manifest, [PlannedFile(*entry) for entry in files], [name for name, _status in directories]


class PlannedFiles:
    """Every file of a job's winners, as often as wanted: from memory, or from the records again.

    Reading again verifies each record's digest, so a second pass sees what the first one saw.
    """

    def __init__(
        self,
        context: StageContext,
        winners: list[Winner],
        entries: list[PlannedFile] | None,
        identities: dict[str, str],
    ) -> None:
        self._context = context
        self._winners = winners
        self._entries = entries
        self._identities = identities

    @property
    def in_memory(self) -> list[PlannedFile] | None:
        """The files themselves, when they are kept."""
        return self._entries

    async def __aiter__(self) -> AsyncIterator[PlannedFile]:
        """Every file; `batches` is cheaper where all are wanted."""
        async for batch in self.batches():
            for file in batch:
                yield file

    async def batches(self) -> AsyncIterator[list[PlannedFile]]:
        """Every file, many at a time: as many as are kept in memory, else those of a few megabytes of records."""
        identities = self._identities
        async for batch in self._kept() if self._entries is not None else self._read_again():
            if identities:
                for file in batch:
                    if file.identity is None:
                        file.identity = identities.get(file.source)
            yield batch

    async def _kept(self) -> AsyncIterator[list[PlannedFile]]:
        yield self._entries or []

    async def _read_again(self) -> AsyncIterator[list[PlannedFile]]:
        for winners in _by_length(self._winners, self._context.config.manifest_queue_capacity):
            decoded: dict[int, list[PlannedFile]] = {}

            async def load(item: tuple[int, Winner], decoded: dict[int, list[PlannedFile]] = decoded) -> None:
                number, winner = item
                data = await self._read_winner(winner)
                if digest_of(data) != winner.digest:
                    raise RecordError(
                        "the record changed after the job was decided",
                        field="digest",
                        path=self._context.layout.job_directory / winner.record,
                        outcome="unknown",
                        next_step="find out who writes into the job's directory",
                    )
                decoded[number] = _decode(self._context, winner.record, data)[1]
                await refuse_linked_sources(self._context, winner.record, decoded[number])

            await run_workers(
                enumerate(winners),
                load,
                workers=self._context.config.io_concurrency,
                operation="job_stage_load_manifests",
            )
            yield [file for number in range(len(winners)) for file in decoded.pop(number)]

    async def _read_winner(self, winner: Winner) -> bytes:
        layout = self._context.layout
        try:
            return await _read(self._context, winner.record)
        except StoreNotFoundError:
            name = winner.record.rpartition("/")[2]
            if layout.job_directory / winner.record != layout.manifests_frozen / name:
                raise
            # A driver of this job that stayed undecided may undo the freeze after another one decided.
            return await _read(self._context, (layout.manifests / name).relative_to(layout.job_directory))


def _by_length(winners: list[Winner], most: int) -> Iterator[list[Winner]]:
    """Winners in runs of at most so many, and so many bytes of records as may be read at once; at least one."""
    run: list[Winner] = []
    length = 0
    for winner in winners:
        if run and (length + winner.length > BYTES_IN_FLIGHT or len(run) == most):
            yield run
            run, length = [], 0
        run.append(winner)
        length += winner.length
    if run:
        yield run


def refs_of_messages(context: StageContext, task_commits: Iterable[TaskCommit]) -> list[RecordRef]:
    """The records that messages name: exactly these win.

    Raises:
        RecordError: A message is of another job, names a record outside the job's directory, or a task twice.
    """
    layout = context.layout
    refs: list[RecordRef] = []
    seen: dict[int, TaskCommit] = {}
    for message in task_commits:
        if not isinstance(message, TaskCommit):
            raise RecordError(
                f"a task commit message is missing: {message!r} was given in its place",
                operation="commit_job",
                next_step="pass the task_commit of every task, and no None",
            )
        if message.job_id != layout.job_id:
            raise RecordError(
                f"a task commit message of job {message.job_id} was given to job {layout.job_id}",
                field="job_id",
                path=message.record,
                operation="commit_job",
            )
        if message.task in seen:
            raise RecordError(
                f"two task commit messages name task {message.task} (attempts {seen[message.task].attempt} "
                f"and {message.attempt})",
                field="task",
                path=message.record,
                operation="commit_job",
                next_step="pass one message a task: the attempt your engine chose",
            )
        seen[message.task] = message
        refs.append(_ref_of(context, message))
    return sorted(refs, key=lambda ref: ref.record)


def _ref_of(context: StageContext, message: TaskCommit) -> RecordRef:
    layout = context.layout
    if context.spec.delivery == "listing":
        # The record lies under the task's name, and moves when the listing is frozen.
        directory = layout.manifests_frozen if context.store.capabilities.atomic_directory_rename else layout.manifests
        path = directory / layout.manifest(message.task).name
        return RecordRef(path.relative_to(layout.job_directory), message.digest, length=message.length)
    path = layout.attempt_record(message.task, message.attempt, message.nonce)
    if message.record != path.uri:
        raise RecordError(
            "a task commit message names a record that is not where its attempt's record is",
            field="record",
            path=message.record,
            operation="commit_job",
        )
    inline = message.inline.encode() if message.inline is not None else None
    return RecordRef(path.relative_to(layout.job_directory), message.digest, inline, message.length)


async def check_attempt_records(context: StageContext, refs: list[RecordRef]) -> None:
    """Makes sure that the records which messages name stand, those that messages carry too: one listing.

    Whoever finishes the job later has only the records to go by, and an attempt that was aborted took its away.

    Raises:
        TaskError: One is gone.
        JobNotFoundError: So is their directory.
    """
    layout, store = context.layout, context.store
    try:
        standing = {child.path.name async for child in store.list(layout.attempts)}
    except StoreNotFoundError as error:
        raise JobNotFoundError(
            f"job {layout.job_id} has no attempts directory: it was cleaned up, by itself or by a Hadoop committer "
            "that deletes all of _temporary",
            operation="commit_job",
            path=layout.attempts,
            next_step="run the job again; nothing was published",
        ) from error
    gone = [ref.record for ref in refs if ref.record.rpartition("/")[2] not in standing]
    if gone:
        raise TaskError(
            f"the records of {len(gone)} task attempts are gone, the first: {gone[0]}: it was aborted, or the job was "
            "cleaned up",
            operation="commit_job",
            path=layout.job_directory / gone[0],
            next_step="commit with the message of another attempt of the task, or run the task again",
        )


def check_task_count(refs: list[RecordRef], tasks: int | None, job_id: str) -> None:
    """Refuses a commit with another number of tasks than the job has.

    Raises:
        TaskMissingError: The numbers differ.
    """
    if tasks is not None and len(refs) != tasks:
        raise TaskMissingError(
            f"job {job_id} has {tasks} tasks, {len(refs)} committed",
            operation="commit_job",
            next_step="run the missing tasks, then commit again; nothing was published",
        )
