"""The stage by which workers in other processes publish chunks of a decided job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from committer.flow.pacing import RateShares, claim_limits
from committer.flow.workers import run_workers
from committer.logs import job_logger
from committer.records.job_state import Decision
from committer.records.publish_chunk import PlannedFile, PublishAccount, PublishChunk, PublishPool
from committer.records.success import FILENAMES_LIMIT
from committer.records.task_commit import digest_of
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState, is_forward_only
from committer.stages.durability import batches_by_length
from committer.stages.facts import DecisionFacts, FactList
from committer.stages.load.planned_files import PlannedFiles
from committer.stages.publish.publish import Published
from committer.stores.abilities import BATCH_RENAME

_MOST_FILES: Final = 5_000
_MOST_BYTES: Final = 1 << 20
# Workers differ in speed: with several chunks each, none waits long for the last.
_CHUNKS_A_WORKER: Final = 4
# Bytes of a file in a chunk besides its texts.
_FRAME: Final = 64


def files_of_a_chunk(files: int, workers: int) -> int:
    """Returns the number of files in a chunk of a job with `files` files and this number of workers."""
    return max(1, min(_MOST_FILES, -(-files // (max(1, workers) * _CHUNKS_A_WORKER))))


def cut(files: list[PlannedFile], most: int) -> Iterator[list[PlannedFile]]:
    """Yields batches of at most `most` files and about a megabyte, but of at least one file."""
    return batches_by_length(files, _length, most=most, most_bytes=_MOST_BYTES)


def _length(file: PlannedFile) -> int:
    length = _FRAME + len(file.source) + len(file.destination) + len(file.identity or "") + len(file.stamp)
    if file.upload is not None:
        texts = (*file.upload.etags, *file.upload.checksums)
        length += len(file.upload.id) + sum(map(len, texts)) + 2 * len(texts)
    return length


def make_chunk(
    context: StageContext,
    state: CommitState,
    number: int,
    files: list[PlannedFile],
    *,
    rate: float | None,
    forward_only: bool,
) -> PublishChunk:
    """Builds the message for a batch of files, with what the decision recorded at their destinations."""
    entries = msgspec.msgpack.encode(files)
    return PublishChunk(
        number=number,
        spec=msgspec.structs.replace(context.spec, config=context.config),
        driver=state.decision.driver,
        files=len(files),
        size=sum([file.size for file in files]),
        entries=entries,
        digest=digest_of(entries),
        forward_only=forward_only,
        sealed=state.decision.sealed,
        rate=rate,
    )


def state_of_chunk(context: StageContext, chunk: PublishChunk) -> CommitState:
    """Returns what a worker publishes, or raises `RecordError` for a damaged chunk or one of another release."""
    files = chunk.decoded()
    decision = Decision(
        job_id=chunk.spec.job_id,
        decision="commit",
        driver=chunk.driver,
        created="",
        config=chunk.spec.config,
        files=chunk.files,
        size=chunk.size,
        sealed=chunk.sealed,
    )
    targets = FactList(file.stood for file in files if file.stood is not None)
    state = CommitState.of(context, decision, DecisionFacts([], targets=targets), files)
    state.forward_only = chunk.forward_only
    return state


def part_of(context: StageContext, state: CommitState, files: list[PlannedFile]) -> CommitState:
    """Returns the same decision for these files only."""
    return replace(state, files=PlannedFiles(context, [], files, decided=True), promote=None)


_log = job_logger("committer.stages")

# Coroutines that wait for workers; the pool limits the chunks under way.
_MOST_AT_ONCE: Final = 4096

# Requests that one process sends per second, about; and the files of a commit that takes it half a minute.
_ONE_DRIVERS_RATE: Final = 3_000
_WORTH_IT: Final = 100_000


def is_worth_workers(context: StageContext, state: CommitState) -> bool:
    """Whether workers publish sooner: only if the store bears more than one process sends, and has no batch rename."""
    store = context.store
    rate = context.config.io_rate_for(store.scheme, store.capabilities.default_io_rate)
    bears_more = rate is None or rate > _ONE_DRIVERS_RATE
    return state.decision.files >= _WORTH_IT and bears_more and BATCH_RENAME.of(store) is None


class _Run(NamedTuple):
    number: int
    files: list[PlannedFile]
    share: float | None


class PublishElsewhere(Stage[CommitState, Published]):
    """The stage that cuts the plan into chunks, gives each to a worker, and collects an account of each.

    A worker is one more driver of the decided job that only publishes, so the rules for drivers hold whatever
    becomes of it, and whenever and however often it runs a chunk. A chunk counts if its account says that every
    file is in place. Otherwise (its worker died, refused, or could not tell) this driver publishes every file
    of it itself, so that it reports, or rolls back for, only what it saw. Meanwhile it gives out no chunk.

    Preconditions, Postconditions, Failure modes: those of the stage that publishes, which `own` makes.
    Cost: none; two calls per chunk in its worker, besides those that publish.
    """

    name = "job_stage_publish_elsewhere"

    def __init__(
        self, context: StageContext, pool: PublishPool, own: Callable[[StageContext], Stage[CommitState, Published]]
    ) -> None:
        super().__init__(context)
        can = context.store.capabilities
        self._rate = context.config.io_rate_for(context.store.scheme, can.default_io_rate)
        self._pool = pool
        self._own = own
        self._shares = RateShares(self._rate, pool.workers)
        self._published = Published()
        self._alone = asyncio.Lock()
        self._failed = False
        self._forward_only = False

    async def execute(self, value: CommitState) -> Published:
        """Gives out chunks as workers become free."""
        self.context.progress.expect(value.decision.files)
        self._forward_only = is_forward_only(self.context, value)
        first = Published()
        runs = self._runs(value, first)
        await run_workers(
            runs, lambda run: self._have_published(value, run), workers=_MOST_AT_ONCE, operation=self.name
        )
        published = self._published
        published.filenames, published.lengths, published.named = first.filenames, first.lengths, first.named
        return published

    async def _runs(self, state: CommitState, first: Published) -> AsyncIterator[_Run]:
        """Yields batches of files, each once a worker is free; `first` collects the names for reports."""
        layout, published, promote = self.context.layout, self._published, state.promote
        most = files_of_a_chunk(state.decision.files, self._pool.workers())
        number = 0
        async for batch in state.files.batches():
            first.add(layout, batch[: FILENAMES_LIMIT - len(first.filenames)], 0)
            files = batch
            if promote is not None:
                files = await promote(batch)
                done = len(batch) - len(files)
                size = sum([file.size for file in batch]) - sum([file.size for file in files])
                published.files += done
                published.size += size
                self.context.progress.advance(done, size)
            for run in cut(files, most):
                yield _Run(number, run, await self._shares.take())
                number += 1

    async def _have_published(self, state: CommitState, run: _Run) -> None:
        try:
            if self._alone.locked():
                # The failure may stop the commit: nothing new begins until that is known.
                async with self._alone:
                    pass
            if self._failed:
                return
            chunk = make_chunk(
                self.context, state, run.number, run.files, rate=run.share, forward_only=self._forward_only
            )
            account = await self._ask(chunk)
            if account is None:
                await self._publish_here(state, run, chunk)
                return
            self._published.recovered += account.recovered
            self.context.statistics.merge(account.statistics)
            self._count(chunk)
            self.context.progress.advance(chunk.files, chunk.size)
        finally:
            self._shares.give_back(run.share)

    async def _ask(self, chunk: PublishChunk) -> PublishAccount | None:
        """Returns the account of a chunk whose files are all in place, else None."""
        try:
            account = await self._pool.publish(chunk)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The pool cancelled its own call.
            self._say(chunk, "its worker was stopped", error)
            return None
        except Exception as error:
            self._say(chunk, "its worker gave no account", error)
            return None
        # The result of a caller's pool is checked, not trusted.
        found: object = account
        if isinstance(found, PublishAccount):
            if found.is_of(chunk):
                return found
            self._say(chunk, found.problem or "its account is of another", found.message)
        else:
            self._say(chunk, "its account is none", type(found).__name__)
        return None

    def _say(self, chunk: PublishChunk, what: str, why: object) -> None:
        _log.warning(
            "job %s: chunk %d of %d files was not published by a worker, so its driver does that: %s: %r",
            self.context.layout.job_id,
            chunk.number,
            chunk.files,
            what,
            why,
        )

    async def _publish_here(self, state: CommitState, run: _Run, chunk: PublishChunk) -> None:
        """Publishes a batch in this process, with the part of the rate that no worker has."""
        async with self._alone:
            if self._failed:
                return
            context = self.context
            rate = self._shares.rest(run.share)
            claim = claim_limits(context.store.endpoint, concurrency=context.config.io_concurrency, rate=rate)
            try:
                published = await self._own(context).run(part_of(context, state, run.files))
            except BaseException:
                self._failed = True
                raise
            finally:
                claim.release()
            self._published.recovered += published.recovered
            self._published.files += published.files
            self._published.size += published.size

    def _count(self, chunk: PublishChunk) -> None:
        self._published.files += chunk.files
        self._published.size += chunk.size
