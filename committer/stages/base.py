"""The base class of stages, the context that the stages of a job share, what tasks write, and the forms of records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, NamedTuple, TypeVar, final

from committer.advice import call
from committer.driver_process import DriverProcess, is_known, this_driver
from committer.errors import JobStateError
from committer.events import Progress, Statistics
from committer.flow.runtime import Runtime, current_runtime
from committer.flow.workers import run_workers
from committer.layout import JobLayout
from committer.logs import audit, job_logger
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.records.manifest import DirectoryEntry, TaskManifest
from committer.records.pending_uploads import UploadEntry
from committer.records.publish_chunk import PublishPool
from committer.records.success import FILENAMES_LIMIT
from committer.spec import JobSpec
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import children_of


class AttemptIdentity(NamedTuple):
    """The identity of one run of a task attempt; the random `nonce` is part of every path of the run."""

    task: int
    attempt: int
    nonce: str


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a task attempt.

    Attributes:
        name: Relative to the task attempt directory.
        identity: From the store, after the file was closed.
        synced: Whether its data survives a power loss already, if that was requested.
        absolute: Its absolute destination path; empty if it has the same name below the destination.
        upload: Its pending upload, if the file does not exist under its name.
        version: The version for the store's preconditions (`FileStatus.version`).
    """

    name: str
    size: int
    identity: str | None
    synced: bool = True
    absolute: str = ""
    upload: UploadEntry | None = None
    version: str | None = None

    @property
    def destination(self) -> str:
        """Published name of the file."""
        return self.absolute or self.name


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """Everything that a task attempt wrote.

    Attributes:
        files: Its files, oldest first.
        directories: Relative directories to create at the destination; parents of files may be left out.
        by_path: Whether programs got the directory's path, so that only the caller knows when they stop writing.
    """

    identity: AttemptIdentity
    directory: StorePath
    files: list[WrittenFile]
    directories: list[str]
    by_path: bool = False


def oldest_first(files: Iterable[WrittenFile], begun: Iterable[tuple[StorePath, str]]) -> list[WrittenFile]:
    """Sorts uploads by their position in `begun`; other files keep their order, that of their closing."""
    # An abort by another process aborts the uploads that exist by then. If the attempt goes on and commits,
    # its oldest upload is among them, and a job commit checks that one (`LoadRecords`).
    order = {upload_id: number for number, (_path, upload_id) in enumerate(begun)}
    return sorted(files, key=lambda file: 0 if file.upload is None else order[file.upload.id])


def cleanup_call(layout: JobLayout, *, force: bool = False) -> str:
    """Returns, as text, the call that removes the remains of a job."""
    return call("cleanup", str(layout.destination), job_id=layout.job_id, force=force)


def abandon_advice(layout: JobLayout) -> str:
    """Returns a sentence about how to end a job whose records are lost or whose files can never all be published."""
    return (
        f"{cleanup_call(layout, force=True)} ends the job: what it published stays; what it did not publish, and the "
        "old files that it moved aside, are deleted"
    )


_log = job_logger("committer.stages")

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")


@dataclass(slots=True)
class RecordRef:
    """A record to load; a listing gives no `digest`, a message may carry its bytes `inline`; `length` 0 is unknown."""

    record: str
    digest: str | None = None
    inline: bytes | None = None
    length: int = 0


class RecordForms(ABC):
    """The record format of a committer, in which tasks tell drivers what they wrote; it decodes to task manifests.

    What is not abstract suits a format of task manifests, with lists of uploads in the job's directory.

    Attributes:
        takes_records: Whether a job commit by listing first moves the records away from where tasks commit.
        names_directories: Whether records name the directories that files need; Java drivers rely on it.
        visible_early: Whether tasks' files are at the destination before their job is decided.
        forward_only: Whether a decided job cannot be rolled back, because tasks replaced existing files.
        filenames_limit: The most files that `_SUCCESS` names.
        names_all: Whether `_SUCCESS` must name all files; a job with more than the limit is refused.
        like_s3a: Whether `_SUCCESS` has the form of S3A's committers instead of Hadoop's manifest committer.
        hadoop_name: The committer's name in `_SUCCESS`; empty if Hadoop has no such committer.
    """

    takes_records: bool = False
    names_directories: bool = True
    visible_early: bool = False
    forward_only: bool = False
    filenames_limit: int = FILENAMES_LIMIT
    names_all: bool = False
    like_s3a: bool = False
    hadoop_name: str = ""

    @abstractmethod
    def encode_task(self, context: StageContext, output: TaskOutput, directories: list[DirectoryEntry]) -> bytes:
        """Encodes the record of a task attempt's output; `directories` are those that its files need."""

    @abstractmethod
    def decode_task(self, context: StageContext, path: StorePath, data: bytes) -> TaskManifest:
        """Decodes a record under a task's name to a task manifest, or raises `RecordError`."""

    def as_manifest(self, context: StageContext, path: StorePath, data: bytes) -> bytes:
        """Converts a record, or a copy, to an encoded task manifest (`data` if it is one), or raises `RecordError`."""
        return data

    async def read(self, context: StageContext, path: StorePath) -> bytes:
        """Reads the record of a task, or a copy of one; raises `StoreNotFoundError` if it does not exist."""
        return await context.holding(path).read(path, limit=context.config.record_size_limit)

    @abstractmethod
    async def list_records(self, context: StageContext, *, taking: bool) -> list[RecordRef]:
        """Lists a job's records; `taking` moves them away from where tasks commit, if `takes_records`. Repeatable."""

    async def give_back(self, context: StageContext) -> None:
        """Restores the records that `list_records` moved, for a job that stays undecided."""
        return

    async def outside(self, context: StageContext) -> list[FileStatus]:
        """Lists what the job keeps outside its own directory; its removal deletes that, too."""
        beside = context.layout.beside
        return [] if beside is None else [FileStatus(beside, True, 0)]

    async def upload_lists(self, context: StageContext) -> list[StorePath]:
        """Returns the lists of uploads that the job's task attempts began; called on stores with uploads only."""
        return [child.path for child in await children_of(context.store, context.layout.uploads)]

    def is_list_of(self, place: StorePath, winners: AbstractSet[str]) -> bool:
        """Whether a place that `upload_lists` found belongs to one of these tasks or task attempts."""
        # A run's name is its attempt's id and a nonce.
        return place.name.rpartition("-")[0] in winners

    @abstractmethod
    def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """Yields the uploads, by path and id, of such a place or record; skips paths outside with a warning (G10)."""

    def upload_lists_of(self, context: StageContext, attempt_id: str) -> list[StorePath]:
        """Returns other places, outside the lists in the job's directory, that name an attempt's uploads; no call."""
        return []


@dataclass(slots=True)
class JobKnowledge:
    """Facts about a job that one process keeps, to save store calls.

    Attributes:
        is_open: Whether the job's `opened` record says that the job was opened; None until that record is known.
        entries: Entries of this job that this process created or saw (`committer.stages.decide.entries`).
        committed: Numbers of tasks that this process saw commit: a listing that lacks one has lost records.
        is_probed: Whether this process tested the store's abilities at the job's place.
    """

    is_open: bool | None = None
    entries: set[StorePath] = field(default_factory=set)
    committed: frozenset[int] = frozenset()
    is_probed: bool = False


@dataclass(frozen=True, slots=True)
class StageContext:
    """The state that the stages of one job, or of one task attempt, share.

    Attributes:
        listed_layout: The layout of Hadoop's jobs at the store of which only the id is known.
        store: The destination's store, paced and counted.
        driver: Random name of this driver, in every record that it writes.
        config: The configuration in force: the decision's, once there is one.
        known: Facts that this process has learned about the job.
        pool: Workers that publish the job's files for this driver; None if it publishes them itself.
        records: The opened store of the records under tasks' names, if `JobLayout.keeps_elsewhere`.
    """

    spec: JobSpec
    layout: JobLayout
    listed_layout: type[JobLayout]
    forms: RecordForms
    store: Store
    statistics: Statistics
    progress: Progress
    driver: str
    config: CommitterConfig
    runtime: Runtime = field(default_factory=current_runtime)
    known: JobKnowledge = field(default_factory=JobKnowledge)
    pool: PublishPool | None = None
    records: Store | None = None

    def holding(self, path: StorePath) -> Store:
        """Returns the store of a path of the job; records under tasks' names may be on another store."""
        if self.records is not None and (path == self.layout.manifests or path.is_under(self.layout.manifests)):
            return self.records
        return self.store

    def timestamp(self) -> str:
        """Returns the current time in the form of records."""
        return self.runtime.now().isoformat()

    async def process(self) -> DriverProcess:
        """Returns this driver's process, as far as records may name it."""
        look = partial(this_driver, self.config.driver_hidden)
        return look() if is_known() else await self.runtime.run_blocking(look)

    @property
    def durable(self) -> bool:
        """Whether writes to the destination's store must survive a power loss."""
        return self.durable_on(self.store)

    def durable_on(self, store: Store) -> bool:
        """Whether writes to `store` must survive a power loss."""
        return self.config.durability == "fsync" and store.capabilities.durable

    def recover_call(self, *, rollback: bool = False, force: bool = False) -> str:
        """Returns, as text, the call that finishes or rolls back a decided job."""
        roots = [str(self.layout.target(root)) for root in sorted(self.layout.roots)]
        config = {"absolute_roots": roots} if roots else None
        place = str(self.layout.destination)
        return call("recover", place, self.layout.job_id, rollback=rollback, force=force, config=config)

    def cleanup_call(self, *, force: bool = False) -> str:
        """Returns, as text, the call that removes the remains of a finished job, or abandons the job."""
        return cleanup_call(self.layout, force=force)

    def rollback_advice(self) -> str:
        """Returns a sentence about how to roll a decided job back."""
        if self.forms.forward_only:
            return "it cannot be rolled back, for its tasks made its files visible"
        fenced = self.store.capabilities.fences_drivers
        alone = "" if fenced else ", once no other driver of it is alive"
        return f"{self.recover_call(rollback=True, force=not fenced)} rolls the job back{alone}"

    def repair_advice(self) -> str:
        """Returns the end of a sentence about what to do if the records of a decided job cannot be repaired."""
        back = "" if self.forms.forward_only else f", or {self.rollback_advice()}"
        ways = f"then {self.recover_call()} finishes the job{back}"
        return f", {ways}; where that cannot be, {self.abandon_advice()}"

    def abandon_advice(self) -> str:
        """Returns a sentence about how to end a decided job that can be neither finished nor rolled back."""
        return abandon_advice(self.layout)


class Stage(ABC, Generic[In, Out]):
    """Base class of a step of a protocol, run once, timed and audited (``AbstractJobOrTaskStage`` in Hadoop).

    Attributes:
        name: The stage's name in progress, audit and reports; Hadoop's where it has one.
        statistic: The duration statistic; empty if Hadoop has none for the stage.
    """

    name: str = ""
    statistic: str = ""

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self._ran = False

    @final
    async def run(self, value: In) -> Out:
        """Runs the stage; a second run raises `JobStateError`."""
        if self._ran:
            raise JobStateError(f"stage {self.name} ran already", operation=self.name)
        self._ran = True
        timed = self.context.statistics.timed(self.statistic) if self.statistic else nullcontext()
        monotonic = self.context.runtime.monotonic
        started = monotonic()
        with audit(st=self.name), self.context.progress.stage(self.name):
            try:
                with timed:
                    result = await self.execute(value)
            except BaseException as error:
                _log.debug("stage %s failed after %.3f s: %s", self.name, monotonic() - started, type(error).__name__)
                raise
            _log.debug("stage %s took %.3f s", self.name, monotonic() - started)
            return result

    @abstractmethod
    async def execute(self, value: In) -> Out:
        """Does the work of the stage."""

    async def run_workers(self, items: Iterable[T] | AsyncIterable[T], work: Callable[[T], Awaitable[object]]) -> int:
        """Runs `work` on every item, `io_concurrency` at a time: see `committer.flow.workers.run_workers`."""
        return await run_workers(items, work, workers=self.context.config.io_concurrency, operation=self.name)
