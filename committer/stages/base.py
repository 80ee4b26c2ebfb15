"""The base class of stages, and the context that the stages of a job share.

The base class does what no stage may forget: it marks progress and the audit context (`st`), times the stage under
Hadoop's statistic name, and refuses a second run (``AbstractJobOrTaskStage`` in Hadoop).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar, final

from committer.advice import call
from committer.driver_process import DriverProcess, is_known, this_driver
from committer.errors import JobStateError
from committer.events import Progress, Statistics
from committer.flow.runtime import Runtime, current_runtime
from committer.layout import JobLayout
from committer.logs import audit, job_logger
from committer.options.config import CommitterConfig
from committer.paths import StorePath
from committer.records.manifest import DirectoryEntry, TaskManifest
from committer.records.publish_chunk import PublishPool
from committer.records.success import FILENAMES_LIMIT
from committer.spec import JobSpec
from committer.stages.task_output import TaskOutput
from committer.stores.base import FileStatus, Store


def cleanup_call(layout: JobLayout, *, force: bool = False) -> str:
    """The call that removes what is left of a job."""
    return call("cleanup", str(layout.destination), job_id=layout.job_id, force=force)


def giving_up(layout: JobLayout) -> str:
    """What ends a job whose records are lost, or that can never be published whole, as a sentence."""
    return (
        f"{cleanup_call(layout, force=True)} ends the job: what it published stays; what it did not publish, and the "
        "old files that it moved aside, are deleted"
    )


_log = job_logger("committer.stages")

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(slots=True)
class RecordRef:
    """A record to load.

    Attributes:
        record: Relative to the job's directory.
        digest: What it must be; None when a listing found it.
        inline: Its bytes when a message carried them.
        length: How many bytes it is said to have; 0 when neither a message nor a listing says.
    """

    record: str
    digest: str | None = None
    inline: bytes | None = None
    length: int = 0


class RecordForms(ABC):
    """The forms of what a committer records: what differs between committers in what tasks tell drivers.

    Whatever its form, a driver reads a task's record as a task manifest, and its decision rests on that.

    Attributes:
        takes_records: Whether a job commit by listing first takes away what tasks committed.
        names_directories: Whether records name the directories that files need, for a Java driver that trusts them.
        visible_early: Whether tasks' files stand at the destination before their job is decided.
        forward_only: Whether a decided job can never be taken back, because tasks replaced what stood there.
        filenames_limit: How many files `_SUCCESS` names at most.
        names_all: Whether it must name them all, so that a job with more is refused.
        like_s3a: Whether `_SUCCESS` is written as S3A's committers do, else as Hadoop's manifest committer does.
        hadoop_name: What `_SUCCESS` calls the committer; empty where Hadoop has none, then its own name.
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
        """The record of what a task attempt wrote.

        Args:
            context: The job, with the attempt's own statistics.
            output: What it wrote.
            directories: The directories that its files need.
        """

    @abstractmethod
    def decode_task(self, context: StageContext, path: StorePath, data: bytes) -> TaskManifest:
        """A record under a task's name, as a task manifest.

        Raises:
            RecordError: It is none.
        """

    @abstractmethod
    def as_manifest(self, context: StageContext, path: StorePath, data: bytes) -> bytes:
        """A record, or a copy of one, as an encoded task manifest: `data` itself where it is one.

        Raises:
            RecordError: It is none that could be committed.
        """

    @abstractmethod
    async def read(self, context: StageContext, path: StorePath) -> bytes:
        """The record of a task, or a copy of one, from where it stands.

        Raises:
            StoreNotFoundError: None stands there.
        """

    @abstractmethod
    async def list_records(self, context: StageContext, *, taking: bool) -> list[RecordRef]:
        """The records of a job by listing.

        Args:
            context: The job.
            taking: Take them away from where tasks commit, where `takes_records`. May run again, or beside another
                driver of the job.
        """

    async def give_back(self, context: StageContext) -> None:
        """Undoes what `list_records` took, for a job that stays undecided; nothing unless `takes_records`."""
        return

    @abstractmethod
    async def outside(self, context: StageContext) -> list[FileStatus]:
        """What the job has outside its own directory, and goes with it."""

    @abstractmethod
    async def upload_lists(self, context: StageContext) -> list[StorePath]:
        """Places that say which uploads the job's task attempts began; asked on stores with uploads only."""

    @abstractmethod
    def is_list_of(self, place: StorePath, winners: AbstractSet[str]) -> bool:
        """Whether a place that `upload_lists` found is of one of these tasks, or task attempts."""

    @abstractmethod
    def uploads_in(self, context: StageContext, place: StorePath) -> AsyncIterator[tuple[StorePath, str]]:
        """The uploads that such a place, or a task's record, names, by path and id.

        What is damaged, or lies neither below the destination nor below a root (G10), is passed over with a warning.
        """

    @abstractmethod
    def upload_lists_of(self, context: StageContext, attempt_id: str) -> list[StorePath]:
        """Places beside the lists in the job's directory that name uploads of a task attempt; no call."""


@dataclass(frozen=True, slots=True)
class StageContext:
    """What the stages of one job, or of one task attempt, share. Frozen before the first stage runs.

    Attributes:
        spec: The job.
        layout: Where it lives.
        listed_layout: The layout of jobs of Hadoop's at the store of which nothing but the id is known.
        forms: What its committer's records look like.
        store: The destination's store, paced and counted.
        statistics: Where durations and counts go.
        progress: Where progress goes.
        driver: Random name of this driver, in every record it writes.
        config: The choices in force (the decision's, once there is one).
        runtime: Clock and randomness.
        plain_records: Digests of the task records that this process proved to name nothing but plainly spelled paths
            inside: when one of them is read again, its names are cut off without another look.
        opened: Whether the job was opened, once that was read; empty before.
        entries: Entries of this job that this process created or saw (`committer.stages.decide.entries`).
        proved: Whether this process tried what the store can do there: the one that set the job up did.
        pool: Workers that publish the job's files for this driver; None where it publishes them itself.
        records: The store of the records under tasks' names, opened, where the job keeps these elsewhere
            (`JobLayout.keeps_elsewhere`); else None.
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
    plain_records: set[str] = field(default_factory=set)
    opened: list[bool] = field(default_factory=list)
    entries: set[StorePath] = field(default_factory=set)
    proved: bool = False
    pool: PublishPool | None = None
    records: Store | None = None

    def holding(self, path: StorePath) -> Store:
        """The store that holds a path of the job: that of the records under tasks' names may be another."""
        if self.records is not None and (path == self.layout.manifests or path.is_under(self.layout.manifests)):
            return self.records
        return self.store

    def timestamp(self) -> str:
        """Now, as records spell it."""
        return self.runtime.now().isoformat()

    async def process(self) -> DriverProcess:
        """This driver's process, as far as records may name it."""
        look = partial(this_driver, self.config.driver_hidden)
        return look() if is_known() else await self.runtime.run_blocking(look)

    @property
    def durable(self) -> bool:
        """Whether what is written must survive a power loss."""
        return self.durable_on(self.store)

    def durable_on(self, store: Store) -> bool:
        """The same of what is written to a store that may be another."""
        return self.config.durability == "fsync" and store.capabilities.durable

    def recover_call(self, *, rollback: bool = False, force: bool = False) -> str:
        """The call that a user makes whose job is decided but not ended."""
        roots = [str(self.layout.target(root)) for root in sorted(self.layout.roots)]
        config = {"absolute_roots": roots} if roots else None
        place = str(self.layout.destination)
        return call("recover", place, self.layout.job_id, rollback=rollback, force=force, config=config)

    def cleanup_call(self, *, force: bool = False) -> str:
        """The call that a user makes whose job is over, with something left of it; or who gives the job up."""
        return cleanup_call(self.layout, force=force)

    def taking_back(self) -> str:
        """What takes a decided job back, as a sentence."""
        if self.forms.forward_only:
            return "it cannot be taken back, for its tasks made its files visible"
        fenced = self.store.capabilities.fences_drivers
        alone = "" if fenced else ", once no other driver of it is alive"
        return f"{self.recover_call(rollback=True, force=not fenced)} takes the job back{alone}"

    def else_giving_up(self) -> str:
        """What a user does who cannot mend the records of a decided job, as the end of a sentence."""
        back = "" if self.forms.forward_only else f", or {self.taking_back()}"
        ways = f"then {self.recover_call()} finishes the job{back}"
        return f", {ways}; where that cannot be, {self.giving_up()}"

    def giving_up(self) -> str:
        """What ends a decided job that can neither be finished nor taken back any more, and what that costs."""
        return giving_up(self.layout)


class Stage(ABC, Generic[In, Out]):
    """One step of a protocol. Make it, run it once.

    Attributes:
        name: What progress, audit and reports call the stage (Hadoop's name where it has one).
        statistic: The duration statistic it is timed under; empty when Hadoop has none for it.
    """

    name: str = ""
    statistic: str = ""

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self._ran = False

    @final
    async def run(self, value: In) -> Out:
        """Runs the stage.

        Raises:
            JobStateError: It ran already.
        """
        if self._ran:
            raise JobStateError(f"stage {self.name} ran already", operation=self.name)
        self._ran = True
        with audit(st=self.name), self.context.progress.stage(self.name), self._logged():
            if not self.statistic:
                return await self.execute(value)
            with self.context.statistics.timed(self.statistic):
                return await self.execute(value)

    @contextmanager
    def _logged(self) -> Iterator[None]:
        if not _log.isEnabledFor(logging.DEBUG):
            yield
            return
        monotonic = self.context.runtime.monotonic
        started = monotonic()
        try:
            yield
        except BaseException as error:
            _log.debug("stage %s failed after %.3f s: %s", self.name, monotonic() - started, type(error).__name__)
            raise
        _log.debug("stage %s took %.3f s", self.name, monotonic() - started)

    @abstractmethod
    async def execute(self, value: In) -> Out:
        """What the stage does."""
