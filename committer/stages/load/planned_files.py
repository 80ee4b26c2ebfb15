"""The files that a job publishes, as the winning records name them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from committer.errors import RecordError, StoreNotADirectoryError, StoreNotFoundError
from committer.events import names
from committer.flow.spill import NumberedSpill
from committer.flow.workers import run_workers
from committer.layout import PLAN, JobLayout, has_nonce
from committer.paths import StorePath
from committer.records.job_state import Fact, Winner
from committer.records.manifest import TaskManifest, decode_task_manifest, relative_names
from committer.records.pending_uploads import UploadEntry
from committer.records.publish_chunk import PlannedFile
from committer.records.task_commit import digest_of
from committer.stages.base import StageContext
from committer.stages.durability import batches_by_length
from committer.stages.facts import FactList, Facts
from committer.stores.abilities import LOCAL_PATHS


class RecordEntries(NamedTuple):
    """The files of one record as columns with the fields of `PlannedFile`: they cost a fraction of as many objects."""

    sources: list[str]
    destinations: list[str]
    sizes: list[int]
    identities: list[str | None]
    uploads: list[UploadEntry | None] | None = None
    stamp: str = ""
    versions: list[str | None] | None = None

    def planned(self) -> list[PlannedFile]:
        """Returns the files as a list of `PlannedFile`."""
        files = list(map(PlannedFile, self.sources, self.destinations, self.sizes, self.identities))
        if self.uploads is not None:
            for file, upload in zip(files, self.uploads, strict=True):
                file.upload, file.stamp = upload, self.stamp
        if self.versions is not None:
            for file, version in zip(files, self.versions, strict=True):
                file.version = version
        return files

    def first(self) -> PlannedFile:
        """Returns the first file of a record that has any."""
        upload = self.uploads[0] if self.uploads is not None else None
        return PlannedFile(self.sources[0], self.destinations[0], self.sizes[0], self.identities[0], upload, self.stamp)


class KeptEntries(NamedTuple):
    """The checked files of one record on the driver's disk, with the record's digest."""

    digest: str
    entries: RecordEntries


async def _each(facts: Facts) -> AsyncIterator[Fact]:
    async for some in facts.batches():
        for fact in some:
            yield fact


def out_of_turn(what: str) -> RecordError:
    """Builds the error of facts that are not in the order of the files."""
    return RecordError(
        f"the decision's facts {what}",
        field="path",
        operation="job_stage_load_manifests",
        outcome="unknown",
        next_step="find out who writes into the job's directory",
    )


# Directories that are checked in one call; a record names one for each partition that its task wrote.
_AT_ONCE: Final = 1_000


class LinkedSources:
    """A check that refuses sources behind links, which are not the job's (G10): one call per thousand directories."""

    def __init__(self, context: StageContext) -> None:
        self._context = context
        self._able = LOCAL_PATHS.of(context.store)
        self._records: dict[str, str] = {}

    async def add(self, record: str, sources: Iterable[str]) -> None:
        """Adds the sources of a record; checks, as `look`, once there are many."""
        if self._able is None:
            return
        self._records.update(dict.fromkeys((source.rpartition("/")[0] for source in sources), record))
        if len(self._records) >= _AT_ONCE:
            await self.look()

    async def look(self) -> None:
        """Checks the sources added since the last check; raises `RecordError` if a directory above one is a link."""
        records, self._records = self._records, {}
        if self._able is None or not records:
            return
        layout = self._context.layout
        link = await self._able.find_link(layout.tasks, records)
        if link is None:
            return
        record = next(record for directory, record in records.items() if f"{directory}/".startswith(f"{link}/"))
        raise RecordError(
            f"a source lies behind {link}, which is a link: what is there is not the job's to move",
            field="files",
            path=layout.record_path(record),
            operation="job_stage_load_manifests",
            next_step="run the task again, with the files themselves in its directory",
        )


# Bytes of records that are read and decoded concurrently; decoded they take about three times as much.
BYTES_IN_FLIGHT = 8 << 20

# The same for a second pass, which keeps everything that a batch of records names until it is published.
BYTES_IN_A_RUN = 4 << 20

# Size of a side file with copies of records.
BYTES_OF_COPIES = BYTES_IN_A_RUN

# Files that are converted before the event loop runs other tasks.
_FILES_A_TURN = 5_000

_FIND_WRITER = "find out who writes into the job's directory"


async def read_record(context: StageContext, record: str) -> bytes:
    """Reads a record by its name: one call, except records that are directories."""
    return await context.forms.read(context, context.layout.record_path(record))


async def read_copies(context: StageContext, record: str) -> bytes:
    """Reads a side file of the decision with copies of records: one call."""
    limit = context.config.record_size_limit + BYTES_OF_COPIES
    return await context.store.read(context.layout.job_directory / record, limit=limit)


def are_copies(record: str) -> bool:
    """Whether a winner's record is in a side file of the decision."""
    return record.startswith(PLAN)


async def read_winner(
    context: StageContext, winner: Winner, copies: Mapping[str, bytes] = MappingProxyType({})
) -> bytes:
    """Returns the bytes of a winner's record: from `copies`, else by one call."""
    if not are_copies(winner.record):
        return await read_record(context, winner.record)
    data = copies[winner.record] if winner.record in copies else await read_copies(context, winner.record)
    return data[winner.offset : winner.offset + winner.length]


def decode_record(context: StageContext, record: str, data: bytes) -> tuple[TaskManifest, RecordEntries, list[str]]:
    """Decodes a record; its files and directories get names that were checked to stay inside."""
    layout = context.layout
    source = str(layout.record_path(record))
    with context.statistics.timed(names.OP_LOAD_MANIFEST):
        manifest = decode_task_manifest(data, source=source, names_checked=False)
        read = relative_names(
            manifest,
            destination=layout.destination,
            source_root=layout.recorded_tasks,
            source=source,
            roots=layout.roots,
        )
    return manifest, _entries(layout, manifest, read.sources, read.destinations), read.directories


def _entries(layout: JobLayout, manifest: TaskManifest, sources: list[str], destinations: list[str]) -> RecordEntries:
    sizes = [entry.z for entry in manifest.files]
    identities = [entry.e or None for entry in manifest.files]
    uploads = [entry.u for entry in manifest.files]
    if uploads.count(None) == len(uploads):
        # All files of a record have a version or none has: one store wrote them.
        versions = [entry.v for entry in manifest.files] if manifest.files and manifest.files[0].v else None
        return RecordEntries(sources, destinations, sizes, identities, versions=versions)
    # A record has files of one attempt only; others are refused when they are loaded.
    run = sources[0].partition("/")[0]
    # Hadoop sets no stamp.
    stamp = layout.stamp(run) if has_nonce(run) else ""
    return RecordEntries(sources, destinations, sizes, identities, uploads, stamp)


class PlannedFiles:
    """Every file of a job's winners, iterable repeatedly: from memory, this driver's disk, or the records again.

    The disk holds what was checked of a record of the same digest, and a repeated read verifies the digest, so
    every pass sees the same files.

    Args:
        identities: Those of files whose record has none, in the order of the files.

    Attributes:
        targets: What existed at files' destinations, in the order of the files; later passes attach it to them.
    """

    def __init__(
        self,
        context: StageContext,
        winners: list[Winner],
        entries: list[PlannedFile] | None,
        identities: Facts | None = None,
        *,
        decided: bool = False,
        on_disk: NumberedSpill[KeptEntries] | None = None,
    ) -> None:
        self._context = context
        self._on_disk = on_disk
        self._decided = decided
        self._winners = winners
        self._entries = entries
        self._identities = FactList() if identities is None else identities
        self.targets: Facts = FactList()

    async def __aiter__(self) -> AsyncIterator[PlannedFile]:
        async for batch in self.batches():
            for file in batch:
                yield file

    async def batches(self) -> AsyncIterator[list[PlannedFile]]:
        """Yields all files in batches: all that are in memory, else those of a few megabytes of records."""
        identities = _each(self._identities)
        # Entries in memory have their identity.
        are_lacking = bool(self._identities) and self._entries is None
        stood = _TargetFacts(self.targets) if self.targets else None
        async for batch in self._kept() if self._entries is not None else self._read_again():
            for file in batch if are_lacking else ():
                if file.identity is None:
                    fact = await anext(identities, None)
                    if fact is None or fact.path != file.source:
                        raise out_of_turn(f"do not say what proves {file.source}, in its turn")
                    file.identity = fact.identity
            if stood is not None:
                await stood.give(batch)
            yield batch
        if stood is not None:
            await stood.end()

    async def _kept(self) -> AsyncIterator[list[PlannedFile]]:
        yield self._entries or []

    async def _read_again(self) -> AsyncIterator[list[PlannedFile]]:
        kept = self._on_disk.in_turn() if self._on_disk is not None else None
        copies: dict[str, bytes] = {}
        first = 0
        most = self._context.config.manifest_queue_capacity if kept is None else len(self._winners)
        for winners in batches_by_length(
            self._winners, lambda winner: winner.length, most=most, most_bytes=BYTES_IN_A_RUN
        ):
            linked = LinkedSources(self._context)
            decoded: dict[int, list[PlannedFile]] = {}
            if kept is not None:
                found = await kept.take(range(first, first + len(winners)))
                decoded = await self._restore(first, winners, found, linked)
            first += len(winners)
            if len(decoded) < len(winners):
                await self._load(winners, decoded, linked, copies)
            await linked.look()
            yield [file for number in range(len(winners)) for file in decoded.pop(number)]

    async def _restore(
        self, first: int, winners: list[Winner], found: dict[int, KeptEntries], linked: LinkedSources
    ) -> dict[int, list[PlannedFile]]:
        restored: dict[int, list[PlannedFile]] = {}
        turn = 0
        for number, kept in found.items():
            winner = winners[number - first]
            # The decision names records by digest: an entry with another digest was not checked against it.
            if kept.digest != winner.digest:
                continue
            entries = kept.entries
            await linked.add(winner.record, entries.sources)
            restored[number - first] = entries.planned()
            turn += len(entries.sources)
            if turn >= _FILES_A_TURN:
                turn = 0
                await asyncio.sleep(0)
        return restored

    async def _load(
        self,
        winners: list[Winner],
        decoded: dict[int, list[PlannedFile]],
        linked: LinkedSources,
        copies: dict[str, bytes],
    ) -> None:
        """Reads the records of a batch whose files are not in `decoded`; replaces the side files in `copies`."""
        wanted = {winners[number].record for number in range(len(winners)) if number not in decoded}
        for record in copies.keys() - wanted:
            del copies[record]
        workers = min(self._context.config.io_concurrency, self._context.config.manifest_queue_capacity)

        async def read(record: str) -> None:
            copies[record] = await self._read_copies(record)

        missing = sorted(filter(are_copies, wanted - copies.keys()))
        await run_workers(missing, read, workers=workers, operation="job_stage_load_manifests")

        async def load(number: int) -> None:
            winner = winners[number]
            data = await self._read(winner, copies)
            if digest_of(data) != winner.digest:
                raise RecordError(
                    "the record changed after the job was decided",
                    field="digest",
                    path=self._context.layout.record_path(winner.record),
                    outcome="unknown",
                    next_step=_FIND_WRITER + self._else_give_up(),
                )
            try:
                entries = decode_record(self._context, winner.record, data)[1]
            except RecordError as error:
                # An error with advice speaks for the whole job; recovery alone would fail in the same way.
                error.next_step = error.next_step or f"{_FIND_WRITER}{self._else_give_up()}"
                raise
            await linked.add(winner.record, entries.sources)
            decoded[number] = entries.planned()

        await run_workers(
            [number for number in range(len(winners)) if number not in decoded],
            load,
            workers=workers,
            operation="job_stage_load_manifests",
        )

    async def _read(self, winner: Winner, copies: Mapping[str, bytes]) -> bytes:
        path = self._context.layout.record_path(winner.record)
        try:
            data = await read_winner(self._context, winner, copies)
        except (StoreNotFoundError, StoreNotADirectoryError) as error:
            raise self._gone(path, f"the record of task {winner.task}") from error
        # Only before the decision: a decision rests on copies.
        return self._context.forms.as_manifest(self._context, path, data)

    async def _read_copies(self, record: str) -> bytes:
        try:
            return await read_copies(self._context, record)
        except (StoreNotFoundError, StoreNotADirectoryError) as error:
            path = self._context.layout.job_directory / record
            raise self._gone(path, "a side file of the decision") from error

    def _gone(self, path: StorePath, what: str) -> StoreNotFoundError:
        return StoreNotFoundError(
            f"{what} is gone, which says what tasks committed",
            operation="job_stage_load_manifests",
            path=path,
            next_step="put it back where it was" + self._else_give_up(),
        )

    def _else_give_up(self) -> str:
        return self._context.repair_advice() if self._decided else ""


class _TargetFacts:
    """Facts about files' destinations, in the order of the files."""

    def __init__(self, facts: Facts) -> None:
        self._turns = _each(facts)
        self._next: Fact | None = None
        self._began = False

    async def give(self, files: list[PlannedFile]) -> None:
        """Gives each file the fact about its destination, None if nothing existed there."""
        if not self._began:
            self._began, self._next = True, await anext(self._turns, None)
        fact = self._next
        for file in files:
            is_next = fact is not None and fact.path == file.destination
            file.stood = fact if is_next else None
            if is_next:
                fact = await anext(self._turns, None)
        self._next = fact

    async def end(self) -> None:
        """Raises `RecordError` if facts are left after the last file."""
        left = self._next if self._began else await anext(self._turns, None)
        if left is not None:
            raise out_of_turn(f"say what existed at {left.path}, where no file goes, or not in its turn")
