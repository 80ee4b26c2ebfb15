"""The stage that loads and checks the winning records."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from committer.advice import COMMIT_AGAIN
from committer.errors import RecordError, StoreNotFoundError
from committer.events import Statistics, names
from committer.flow.spill import NumberedSpill
from committer.flow.texts import Repeats
from committer.flow.workers import Budget
from committer.paths import StorePath
from committer.records.job_state import BY_PATH, Winner
from committer.records.manifest import TaskManifest
from committer.records.publish_chunk import PlannedFile
from committer.records.task_commit import digest_of
from committer.stages.base import RecordRef, Stage, StageContext
from committer.stages.facts import NotedFacts
from committer.stages.load.planned_files import (
    BYTES_IN_FLIGHT,
    BYTES_OF_COPIES,
    KeptEntries,
    LinkedSources,
    RecordEntries,
    decode_record,
    read_record,
)
from committer.stages.load.promotions import may_promote, note_owners
from committer.stages.names import NameFolding, name_problems, with_ancestors
from committer.stages.state.own_records import put_record

# Entries kept in memory, some 500 bytes each; those of a larger job are kept on the driver's disk.
ENTRIES_IN_MEMORY = 100_000

# Limit of that disk space: 105 to 130 bytes per file with names of 20 to 30 characters, about twice as many
# with Spark's, so one to two million files. Records of further files are read again.
BYTES_ON_DISK = 256 << 20

# From a tenth of these entries on, the total is extrapolated from the length of the other records.
_FORESEEN_FROM: Final = 0.1
_FORESEEN_BEYOND: Final = 1.2

# Parts of uploads, with an etag each and perhaps a checksum, that count as one entry.
PARTS_AN_ENTRY = 5

# Most sentences about names that the store cannot hold; a job can have millions of such names.
MOST_PROBLEMS = 100

_RUN_AGAIN: Final = "it was damaged, or another program wrote it: run its task again, or the job"


@dataclass(slots=True)
class LoadedRecords:
    """The content of the winning records.

    Attributes:
        winners: One per record, in the order of their names.
        entries: Every entry in the order of the winners, or None if there are too many to keep in memory.
        on_disk: Entries on the driver's disk if `entries` is None; a new owner takes it, as `close` frees it.
        parts: Number of parts of the uploads in `entries`.
        directories: Every directory that the files need, by name, with all ancestors except roots.
        written: Directories that receive files, with the number of files.
        owners: As `note_owners` collects them; only if directories may be renamed as a whole.
        identities: Identities of entries whose record has none, in the order of the files.
        lacking: Whether there are such entries.
        attempts: Task attempt directories of the records, each with its task.
        by_path: Those whose path was given to programs.
        first_files: The first file of each record that has any, by the record's name.
        changed: Sentences about sources that are missing or do not match their record.
        unstorable: Sentences about destinations that the store cannot hold.
        repeats: Destinations by folded name, for the search for duplicates.
        statistics: The tasks' statistics, added to the job's only when these records count: a commit may load twice.
    """

    winners: list[Winner] = field(default_factory=list)
    files: int = 0
    size: int = 0
    entries: list[PlannedFile] | None = field(default_factory=list)
    on_disk: NumberedSpill[KeptEntries] | None = None
    parts: int = 0
    directories: set[str] = field(default_factory=set)
    written: dict[str, int] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    identities: NotedFacts = field(default_factory=NotedFacts)
    lacking: bool = False
    attempts: dict[str, str] = field(default_factory=dict)
    by_path: set[str] = field(default_factory=set)
    first_files: dict[str, PlannedFile] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    unstorable: list[str] = field(default_factory=list)
    repeats: Repeats = field(default_factory=Repeats)
    statistics: Statistics = field(default_factory=Statistics)
    side_files: int = 0

    async def close(self) -> None:
        """Frees disk space. Safe to call twice."""
        on_disk, self.on_disk = self.on_disk, None
        if on_disk is not None:
            await on_disk.close()
        await self.identities.close()


class LoadRecords(Stage[list[RecordRef], LoadedRecords]):
    """The stage that reads and checks every record, many concurrently.

    Preconditions: the digests of the records are known, or the records are copied.
    Postconditions: every entry lies inside, and no link leads its source out (G10); counts agree with the
    records; with `copies`, records are copied to side files of the decision.
    Failure modes: a `RecordError` names the file and the member; nothing changed.
    Cost: one read per record (none if a message carries it), one write per 4 MiB of copies; one call per
    thousand source directories where links can exist. Memory: copies up to 4 MiB and a record; entries up to a
    limit, then on disk up to another; all directories; 8 MiB of records at a time, or one; names as hashes, on
    disk if there are many.
    Hadoop: ``LoadManifestsStage``.
    """

    name = statistic = names.JOB_STAGE_LOAD_MANIFESTS

    def __init__(self, context: StageContext, *, copies: bool = False) -> None:
        super().__init__(context)
        self._copies = _Copies(context) if copies else None
        self._folding = NameFolding(context.store.capabilities)
        self._linked = LinkedSources(context)
        self._in_flight = Budget(BYTES_IN_FLIGHT)
        self._notes_owners = may_promote(context)
        self._kept: dict[int, tuple[KeptEntries, int]] | None = {}
        self._kept_files = self._kept_bytes = self._all_bytes = 0
        self._moved = asyncio.Event()
        self._prefix_bytes = len(context.layout.destination.path.encode()) + 1

    async def execute(self, value: list[RecordRef]) -> LoadedRecords:
        """Loads the records concurrently; returns them in the order of `value`."""
        loaded = LoadedRecords()
        winners: dict[int, Winner] = {}
        self._all_bytes = sum(ref.length for ref in value)
        try:

            async def load(item: tuple[int, RecordRef]) -> None:
                number, ref = item
                async with self._in_flight.hold(ref.length):
                    try:
                        winners[number] = await self._load(number, ref, loaded)
                    except RecordError as error:
                        error.next_step = error.next_step or _RUN_AGAIN
                        raise
                self.context.progress.advance()

            with self.context.statistics.timed(names.OP_LOAD_ALL_MANIFESTS):
                await self.run_workers(enumerate(value), load)
            if self._copies is not None:
                loaded.side_files = await self._copies.end()
            await self._linked.look()
            loaded.winners = [winners[number] for number in range(len(value))]
            # In the order in which a driver that finishes the job reads them, since a decision's facts are in
            # this order.
            kept = self._kept
            loaded.entries = (
                [file for number in sorted(kept) for file in kept.pop(number)[0].entries.planned()]
                if kept is not None
                else None
            )
            _refuse_one_task_twice(loaded.winners)
        except BaseException:
            await loaded.repeats.close()
            await loaded.close()
            raise
        loaded.directories = with_ancestors({*loaded.directories, *loaded.written}, self.context.layout.roots)
        return loaded

    async def _load(self, number: int, ref: RecordRef, loaded: LoadedRecords) -> Winner:
        context = self.context
        try:
            data = ref.inline if ref.inline is not None else await read_record(context, ref.record)
        except StoreNotFoundError as error:
            error.message = f"a listed record is gone, as when its task attempt is aborted: {error.message}"
            error.next_step = f"{COMMIT_AGAIN}; nothing was published"
            raise
        path, digest = context.layout.record_path(ref.record), digest_of(data)
        if ref.digest is not None and digest != ref.digest:
            raise RecordError(
                "the record is not the one its message or decision names: it was replaced since",
                field="digest",
                path=path,
                operation=self.name,
                next_step="commit with the message of the attempt that wrote last, or run the task again",
            )
        read = context.forms.as_manifest(context, path, data)
        if read is not data:
            data, digest = read, digest_of(read)
        manifest, files, directories = decode_record(context, ref.record, data)
        # Hadoop's tasks write the unique id, this engine's the job's id.
        if manifest.jobId not in (context.layout.job_id, context.layout.unique_id):
            raise RecordError(
                f"the record is one of job {manifest.jobId[:128]}, not of {context.layout.job_id}",
                field="jobId",
                path=path,
                operation=self.name,
                next_step="find out who writes into the job's directory",
            )
        record, offset = (ref.record, 0) if self._copies is None else await self._copies.add(data)
        self._gather(files, directories, loaded)
        await self._check_sources(ref.record, manifest, files, loaded)
        await self._keep(number, files, digest, len(data), loaded)
        count, size = len(files.sources), sum(files.sizes)
        loaded.files += count
        loaded.size += size
        await loaded.repeats.add(self._folding.fold_all(files.destinations))
        statistics = loaded.statistics
        statistics.merge(manifest.statistics(source=record))
        statistics.sample(names.COMMITTER_TASK_MANIFEST_FILE_SIZE, len(data))
        # A record is saved before its task counts as completed, so no task's own counts include it.
        statistics.count(names.COMMITTER_TASKS_COMPLETED)
        return Winner(
            record=record,
            digest=digest,
            length=len(data),
            files=count,
            size=size,
            task=manifest.taskID,
            task_attempt=manifest.taskAttemptID,
            offset=offset,
        )

    async def _check_sources(
        self, record: str, manifest: TaskManifest, files: RecordEntries, loaded: LoadedRecords
    ) -> None:
        """Refuses a record with another record's sources; registers sources that may lie behind a link."""
        attempts, uploads, problem = _attempts_of(files.sources), files.uploads, ""
        if len(attempts) > 1 or not loaded.attempts.keys().isdisjoint(attempts):
            problem = "the record names files of more than one task attempt, or of another record's"
        elif uploads is not None and None in uploads:
            problem = "the record names files of two kinds: some wait in uploads, some do not"
        elif self.context.store.capabilities.multipart and not all(one.etags for one in uploads or () if one):
            problem = "the record names an upload without parts"
        if problem:
            path = self.context.layout.record_path(record)
            raise RecordError(problem, field="files", path=path, operation=self.name)
        if not files.sources:
            return
        loaded.attempts.update(dict.fromkeys(attempts, manifest.taskID))
        if BY_PATH in manifest.extraData:
            loaded.by_path.update(attempts)
        await self._linked.add(record, files.sources)
        loaded.first_files[record] = files.first()

    def _gather(self, files: RecordEntries, directories: list[str], loaded: LoadedRecords) -> None:
        written, destinations = loaded.written, files.destinations
        counts = Counter([destination.rpartition("/")[0] for destination in destinations])
        for directory, count in counts.items():
            written[directory] = written.get(directory, 0) + count
        if self._notes_owners:
            note_owners(loaded.owners, files.sources, destinations, counts)
        if files.uploads is None and None in files.identities:
            loaded.lacking = True
        loaded.directories.update(directories)
        if len(loaded.unstorable) < MOST_PROBLEMS:
            capabilities = self.context.store.capabilities
            loaded.unstorable += islice(name_problems(destinations, capabilities, self._prefix_bytes), MOST_PROBLEMS)
            if capabilities.deletes_by_name:
                token = self.context.layout.name_token
                alien = (name for name in destinations if token not in name.rpartition("/")[2])
                why = f"the service deletes by name, and this name lacks the job's token {token}"
                loaded.unstorable += islice((f"{name[:200]}: {why}" for name in alien), MOST_PROBLEMS)

    async def _keep(self, number: int, files: RecordEntries, digest: str, length: int, loaded: LoadedRecords) -> None:
        """Keeps the files of a record for later passes: in memory, of a large job on disk."""
        if self._kept is None:
            await self._moved.wait()
            if loaded.on_disk is not None and loaded.on_disk.takes_more:
                await loaded.on_disk.add(number, KeptEntries(digest, files), weight=length)
            return
        self._kept[number] = KeptEntries(digest, files), length
        self._kept_files += len(files.destinations)
        self._kept_bytes += length
        loaded.parts += sum(len(upload.etags) for upload in files.uploads or () if upload is not None)
        if self._are_too_many(self._kept_files + loaded.parts // PARTS_AN_ENTRY):
            kept, self._kept = self._kept, None
            on_disk: NumberedSpill[KeptEntries] = NumberedSpill(KeptEntries, most_bytes=BYTES_ON_DISK)
            loaded.on_disk = on_disk
            # Concurrent loads wait: an entry that is added long before its turn is not found again.
            try:
                for earlier in sorted(kept):
                    entries, weight = kept.pop(earlier)
                    await on_disk.add(earlier, entries, weight=weight)
            finally:
                # After an error, too, the workers are awaited.
                self._moved.set()

    def _are_too_many(self, entries: int) -> bool:
        """Whether the job's entries will be too many for memory."""
        # It extrapolates, since memory that has held a hundred thousand entries is hardly ever given back to
        # the system.
        if entries <= ENTRIES_IN_MEMORY * _FORESEEN_FROM:
            return False
        foreseen = entries * self._all_bytes // (self._kept_bytes or 1)
        return entries > ENTRIES_IN_MEMORY or foreseen > ENTRIES_IN_MEMORY * _FORESEEN_BEYOND


class _Copies:
    """Copies of records in side files of the decision: a task that commits later replaces a listed record."""

    def __init__(self, context: StageContext) -> None:
        self._context = context
        self._waiting: list[bytes] = []
        self._length = self._files = 0

    async def add(self, data: bytes) -> tuple[str, int]:
        """Appends a record, and writes the side file once full; returns the file's name and the record's offset."""
        name, offset = self._path.name, self._length
        self._waiting.append(data)
        self._length += len(data)
        if self._length >= BYTES_OF_COPIES:
            await self._write()
        return name, offset

    async def end(self) -> int:
        """Writes the last side file; returns the number of files."""
        if self._waiting:
            await self._write()
        return self._files

    @property
    def _path(self) -> StorePath:
        # The driver's name is in the path, so two drivers that race for the decision write different files.
        return self._context.layout.plan_file(self._files, self._context.driver)

    async def _write(self) -> None:
        path, data = self._path, b"".join(self._waiting)
        self._waiting, self._length, self._files = [], 0, self._files + 1
        await put_record(self._context, path, data)


def _attempts_of(sources: list[str]) -> set[str]:
    """Returns the task attempts of some sources; hardly ever more than one."""
    if sources:
        # A name that sorts between two with the same prefix has it, too: a third of the cost of splitting every name.
        first, last = min(sources), max(sources)
        attempt = first.partition("/")[0]
        if first.startswith(f"{attempt}/") and last.startswith(f"{attempt}/"):
            return {attempt}
    return {source.partition("/")[0] for source in sources}


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
