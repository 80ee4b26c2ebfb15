"""The stages that roll a job back: they create the outcome, fence stale drivers, and undo what was published."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from committer.errors import (
    JobStateError,
    OutcomeUnknownError,
    StoreError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePreconditionError,
)
from committer.layout import SUCCESS
from committer.paths import StorePath, by_hand
from committer.records.job_state import Fact, JobOutcome
from committer.records.limits import LIMITS
from committer.records.publish_chunk import PlannedFile
from committer.stages.base import Stage, StageContext
from committer.stages.decide.commit_state import CommitState, is_forward_only, looking_again, stands_fenced
from committer.stages.facts import FactList, Facts
from committer.stages.finish.end_job import EndJob
from committer.stages.identity import is_file_of, stands_as_directory, stood_there
from committer.stages.publish.move_aside import PLACE_TAKEN, take_away
from committer.stages.publish.promote import SealTasks, is_sealed_whole, seal_whole
from committer.stages.publish.publish import remove_empty
from committer.stores.abilities import CONDITIONAL_REPLACE
from committer.stores.helpers import (
    delete_seen,
    end_upload,
    exists,
    finish_block_list,
    is_pending,
    move_file,
    status_or_none,
)


async def fence(context: StageContext) -> None:
    """Renames the directories that publish actions read from or move into, so that every delayed request fails."""
    # Idempotent. Where directories cannot be renamed atomically it does nothing: see `RollBackRequest.force`.
    if context.layout.is_sealed and is_sealed_whole(context):
        # First what a late seal would rename: a seal that comes in between does the same.
        await seal_whole(context)
    for directory, fenced in _fences(context):
        await _fence(context, directory, fenced)


async def check_can_fence(context: StageContext) -> None:
    """Raises `JobStateError` if a directory to fence is gone: at most 4 calls."""
    for directory, fenced in _fences(context):
        sealed = directory == context.layout.sealed and await exists(context.store, context.layout.recorded_tasks)
        if not (sealed or await exists(context.store, directory) or await stands_fenced(context, fenced)):
            raise _cannot_fence(context, directory)


def _fences(context: StageContext) -> list[tuple[StorePath, StorePath]]:
    layout = context.layout
    if not context.store.capabilities.atomic_directory_rename:
        return []
    # If attempts are sealed one by one: the directory that a late seal would rename. What was sealed is in the
    # other one.
    one_by_one = layout.is_sealed and not is_sealed_whole(context)
    tasks = layout.recorded_tasks if one_by_one else layout.tasks
    return [(tasks, layout.tasks_fenced), (layout.superseded, layout.superseded_fenced)]


def fenced_tasks(context: StageContext) -> StorePath:
    """Returns the directory of the job's files after the fence."""
    layout = context.layout
    return layout.superseded_fenced if layout.tasks == layout.superseded else layout.tasks_fenced


async def _fence(context: StageContext, directory: StorePath, fenced: StorePath) -> None:
    store = context.store
    try:
        await store.rename_directory(directory, fenced)
    except (StoreNotFoundError, StoreExistsError) as error:
        # Fenced before; or a late task of this job created the directory again, which harms no job.
        if not await stands_fenced(context, fenced):
            raise _cannot_fence(context, directory) from error
    except StoreError:
        # The response was lost: what exists counts.
        if await exists(store, directory) or not await stands_fenced(context, fenced):
            raise


def _cannot_fence(context: StageContext, directory: StorePath) -> JobStateError:
    return JobStateError(
        f"job {context.layout.job_id} cannot be fenced: {directory.name} is gone",
        operation="fence",
        path=directory,
        outcome="unknown",
        next_step="nothing was rolled back; find out who removed it, and put it back; where it is gone for "
        f"good, {context.abandon_advice()}",
    )


_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class RollBackRequest:
    """Input of a rollback; `force` says that the caller vouches that no other driver of the job is alive."""

    state: CommitState
    reason: str
    force: bool


class RollBack(Stage[RollBackRequest, JobOutcome]):
    """The stage that reads every record, then creates the outcome; `undo` then fences and restores.

    Once the outcome exists no other driver can call the job committed; once the job is fenced no other driver
    can publish. An entry is undone only if the file at its destination is the very one that the job put there;
    the old file comes back from the job's directory. Old files come back before new ones go (G13).

    Preconditions: a commit decision without the outcome `committed`.
    Postconditions: outcome `rolled-back`, or `committed` if another driver was faster. After `undo` nothing of
    the job is at the destination, and everything that it moved away is back.
    Failure modes: a store error leaves it unfinished; a repeat finishes it. `OutcomeUnknownError` if the store
    cannot prove which files are the job's, `RecordError` if records are unreadable: nothing was rolled back.
    Cost: one read per record if entries are not in memory; 3 calls per published file (2 where a rename has a
    precondition on identity; 3 more if it came with its directory), 1 per unpublished file.
    """

    name = "job_stage_roll_back"

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        fenced = context.store.capabilities.atomic_directory_rename
        self._fenced = fenced
        self._tasks = fenced_tasks(context) if fenced else context.layout.tasks
        self._superseded = context.layout.superseded_fenced if fenced else context.layout.superseded
        self._kept_aside: list[str] = []

    def refuse(self, value: RollBackRequest) -> None:
        """Raises `JobStateError` if the job can only go forward, or other drivers can be alive and cannot be fenced."""
        layout = self.context.layout
        if is_forward_only(self.context, value.state):
            raise JobStateError(
                f"job {layout.job_id} replaced files on a store that cannot keep the old ones: it can only go forward",
                operation=self.name,
                path=layout.destination,
                outcome="partial",
                next_step=f"{self.context.recover_call()} finishes it; where it can never be finished, "
                f"{self.context.abandon_advice()}",
            )
        self._check_fencing(value)

    async def execute(self, value: RollBackRequest) -> JobOutcome:
        """Checks, then creates the outcome."""
        self.refuse(value)
        await self._check_readable(value.state)
        await check_can_fence(self.context)
        await self._check_provable(value.state, self.context.layout.tasks)
        return (await EndJob(self.context).run((value.state.decision, "rolled-back", value.reason))).outcome

    def _check_fencing(self, value: RollBackRequest) -> None:
        """Refuses if other drivers of the job can neither be fenced nor are said to be dead."""
        if self._fenced or value.force:
            return
        raise JobStateError(
            f"{self.context.store.scheme}:// cannot fence off another driver of job {self.context.layout.job_id}",
            operation=self.name,
            path=self.context.layout.destination,
            outcome="partial",
            next_step="make sure that no other driver of the job is alive, then call "
            f"{self.context.recover_call(rollback=True, force=True)}",
        )

    async def _check_readable(self, state: CommitState) -> None:
        """Refuses if records are unreadable, or not under this name of the destination (`s3a:` for `s3:`)."""
        # A fence, or an outcome, would then keep the job from ever being finished.
        async for _files in state.files.batches():
            pass

    async def _check_provable(self, state: CommitState, tasks: StorePath) -> None:
        """Refuses if the store cannot prove which files are the job's, unless none of them was published yet."""
        capabilities = self.context.store.capabilities
        if capabilities.identity and capabilities.identity_through_rename:
            return

        async def look(file: PlannedFile) -> None:
            source = tasks / file.source
            if not await exists(self.context.store, source):
                again = self.context.recover_call(rollback=True, force=not self._fenced)
                raise OutcomeUnknownError(
                    f"cannot tell whether what exists at {file.destination} is the job's: the store keeps no proof",
                    operation=self.name,
                    path=self.context.layout.target(file.destination),
                    next_step=f"look at it: where it is the job's, move it back to {by_hand(source)}, then call "
                    f"{again}; nothing was deleted; where that cannot be, {self.context.abandon_advice()}",
                )

        await self.run_workers(state.files, look)

    async def put_back_late(self, state: CommitState) -> None:
        """Restores what this driver moved aside after another driver had rolled the job back and cleaned it up."""
        # What was still at its old place when the job was over belongs there. Only without a fence can a
        # stale driver have moved it.
        if not self._fenced:
            await self._put_back_success(state)
            for facts in (FactList(state.blocking), state.superseded, state.targets):
                await self._put_back_all(facts)
        await self.remove_directories(state)

    async def undo(self, state: CommitState) -> None:
        """Fences, then undoes what was published. Idempotent; only for a job whose outcome is `rolled-back`."""
        if self.context.layout.is_sealed:
            await SealTasks(self.context).run(state)
        await fence(self.context)
        await self._check_provable(state, self._tasks)
        await self._put_back_all(state.superseded)
        await self._with_each(state, self._take_back)
        if not self._fenced:
            # Delayed requests of another driver cannot be fenced here. Without their sources they fail, so the
            # sources go first, and what was published before is deleted afterwards.
            await self.context.store.delete_directory(self._tasks, recursive=True)
            await self._with_each(state, self._delete_ours)
        await self.remove_directories(state)
        await self._put_back_all(FactList(state.blocking))
        await self._put_back_success(state)
        if self._kept_aside:
            raise JobStateError(
                f"{len(self._kept_aside)} old files of {self.context.layout.destination} could not be put back: others "
                f"exist there now, the first: {min(self._kept_aside)}",
                operation=self.name,
                path=self._superseded,
                outcome="partial",
                next_step=f"move away what exists there now; where the old file is not wanted any more, delete it in "
                f"{by_hand(self._superseded)}; then call {self.context.recover_call(rollback=True)}: it puts back the "
                "old files that are left",
            )

    async def _with_each(self, state: CommitState, step: Callable[[PlannedFile], Awaitable[None]]) -> None:
        await self.run_workers(state.files, lambda file: looking_again(lambda: step(file)))

    async def _put_back_all(self, facts: Facts) -> None:
        async for some in facts.batches():
            # A fact without a place aside was never moved.
            some = [fact for fact in some if fact.aside >= 0]
            await self.run_workers(some, self._put_back)

    async def _take_back(self, file: PlannedFile) -> None:
        store, stood = self.context.store, file.stood
        target = self.context.layout.target(file.destination)
        source = self._tasks / file.source
        if stood_there(file):
            return
        if not await self._stands(target, file):
            if stood is not None:
                await self._put_back(stood)
            return
        # If the old file is not aside any more, another driver has restored it since.
        if (stood is not None and not stood.is_directory) and (
            await self._replace_by_old(stood, target) or not await self._stands(target, file)
        ):
            return
        try:
            try:
                await store.rename_file(target, source, identity=file.identity)
            except StoreExistsError:
                if await self._stands(source, file):
                    # Both names of a link: publishing, or undoing, was interrupted.
                    raise
                # A delayed duplicate request of its task created another file there, which is deleted with it.
                await store.rename_file(target, source, replace=True, identity=file.identity)
        except (StoreExistsError, StoreNotFoundError):
            # Or undone by another driver; or it came with its directory, so its source's directory is gone.
            await self._delete_ours(file)
        except StorePreconditionError:
            return
        else:
            if not store.capabilities.conditional_rename and not await self._stands(source, file):
                # Another writer replaced the file after the look; or another driver's rollback has ended meanwhile.
                with suppress(StoreNotFoundError):
                    await store.rename_file(source, target)
                return
        if stood is not None:
            await self._put_back(stood)

    async def _stands(self, path: StorePath, file: PlannedFile) -> bool:
        return is_file_of(await status_or_none(self.context.store, path), file)

    async def _replace_by_old(self, stood: Fact, target: StorePath) -> bool:
        """Renames the old file over the new one in one step, so that one of them exists at any moment."""
        store = self.context.store
        aside = self._superseded / f"{stood.aside:08d}"
        kept = await status_or_none(store, aside)
        if kept is None or kept.identity != stood.identity:
            return False
        try:
            await store.rename_file(aside, target, replace=True, identity=stood.identity)
        except StoreNotFoundError:
            return False
        return True

    async def _delete_ours(self, file: PlannedFile) -> None:
        target = self.context.layout.target(file.destination)
        if not stood_there(file) and await self._stands(target, file):
            await take_away(self.context, target, self._superseded, identity=file.identity)

    async def _put_back(self, fact: Fact) -> None:
        await looking_again(lambda: self._restore(self._superseded / f"{fact.aside:08d}", fact))

    async def _put_back_success(self, state: CommitState) -> None:
        decision = state.decision
        if not (decision.success_present and decision.config.mark_successful_jobs):
            return
        if self.context.store.capabilities.directories:
            await looking_again(lambda: self._move_success_back(decision.success_identity))
            return
        changed = (StoreExistsError, StoreNotFoundError, StorePreconditionError, StoreOutcomeUnknownError)
        await looking_again(lambda: self._put_old_success(decision.success_identity), after=changed, rounds=_ROUNDS)

    async def _move_success_back(self, identity: str | None) -> None:
        aside = self._superseded / SUCCESS
        if await self._kept_success(aside) is not None:
            await self._restore(aside, Fact(kind="superseded", path=SUCCESS, identity=identity))

    async def _put_old_success(self, identity: str | None) -> None:
        """Puts the old marker where none exists, or over itself, since a slow driver may be about to delete it."""
        # It gets one more blank where etags are made of content (S3), so that no delayed delete matches it.
        store, success = self.context.store, self.context.layout.success
        blank = b" " if store.capabilities.publishes_uploads else b""
        standing = await status_or_none(store, success)
        if standing is not None and (identity is None or standing.identity != identity):
            return
        if standing is None:
            kept = await self._kept_success(self._superseded / SUCCESS)
            if kept is not None:
                await store.put(success, kept + blank, exclusive=True)
            return
        able = CONDITIONAL_REPLACE.of(store)
        if able is not None:
            # A slow driver may set it aside between the look and this; then the next round creates it.
            kept = await store.read(success, limit=LIMITS["success"])
            await able.replace_file(success, kept + blank, seen=standing)

    async def _kept_success(self, path: StorePath) -> bytes | None:
        """Returns the content of an old marker; None if it does not exist, or only bars its name."""
        try:
            data = await self.context.store.read(path, limit=LIMITS["success"])
        except StoreNotFoundError:
            return None
        return None if data == PLACE_TAKEN else data

    async def _restore(self, aside: StorePath, fact: Fact) -> None:
        """Moves one file or directory back from the job's directory, replacing nothing."""
        store = self.context.store
        place = self.context.layout.target(fact.path)
        kept = await status_or_none(store, aside)
        if kept is None:
            return

        async def move() -> None:
            if fact.is_directory:
                await store.rename_directory(aside, place)
            else:
                # A copy has another identity.
                renames = store.capabilities.atomic_file_rename
                await move_file(store, aside, place, identity=fact.identity if renames else None)

        try:
            try:
                await move()
            except StoreNotFoundError:
                if not await exists(store, aside):
                    # Another driver restored it.
                    return
                # Its parent directory was removed meanwhile.
                await store.make_directory(place.parent, parents=True)
                await move()
        except StoreExistsError:
            standing = await status_or_none(store, place)
            same = (
                standing is not None
                and kept.identity is not None
                and standing.identity == kept.identity
                and not stands_as_directory(kept)
            )
            if same:
                await take_away(self.context, aside, self._superseded, identity=kept.identity)
            elif fact.path != SUCCESS:
                # An existing `_SUCCESS` is another job's, and the one that counts.
                self._kept_aside.append(fact.path)

    async def remove_directories(self, state: CommitState) -> None:
        """Removes directories that the job created, deepest first, if they are empty."""
        kept = (StoreNotEmptyError, StoreNotADirectoryError, StoreNotFoundError)
        await remove_empty(self.context, state.directories, unless=kept, operation=self.name)


class RollBackUploads(RollBack):
    """The rollback of uploads: deletes completed files that are still the job's, and aborts the rest.

    An aborted upload can never be completed, however late the request: so each file fences itself, and `force` is not
    needed. No old file was deleted yet (G13), so only `_SUCCESS` is restored.

    A request to delete the old `_SUCCESS` may still arrive: a delayed one, or one of a paused driver. Its only
    condition is an etag, which is made of the content and of the way it was sent. So `_SUCCESS` is written with the
    same content, sent the other way, even if it still exists.

    Cost: 2 calls per published file, 4 per unpublished one, 2 more for each of Hadoop's; some 20 for `_SUCCESS`.
    """

    name = "job_stage_roll_back"

    def _check_fencing(self, value: RollBackRequest) -> None:
        """Does nothing: every upload is its own fence."""

    async def _check_provable(self, state: CommitState, tasks: object) -> None:
        """Stamps prove which files are the job's."""

    async def put_back_late(self, state: CommitState) -> None:
        """Restores `_SUCCESS`, if this driver moved it after another driver had rolled the job back."""
        await self._put_back_success(state)

    async def undo(self, state: CommitState) -> None:
        """Undoes what was published and aborts the rest. Idempotent; only for a job that is rolled back."""
        await self._with_each(state, self._end)
        await self._put_back_success(state)

    async def _end(self, file: PlannedFile) -> None:
        if file.upload is None:
            return
        store, target = self.context.store, self.context.layout.target(file.destination)
        pends = False
        if not file.stamp:
            # Hadoop sets no stamp. A file that exists while the upload is pending is not the job's, however similar.
            alike = is_file_of(await status_or_none(store, target), file)
            pends = await is_pending(store, target, file.upload.id)
            if alike and pends:
                await end_upload(store, target, file.upload.id)
                return
        if await self._deleted(file):
            return
        await end_upload(store, target, file.upload.id)
        # Another driver may have completed it since the look; from here on none can.
        if not await self._deleted(file) and not (file.stamp or (file.identity and pends)):
            await self._refuse_to_guess(file)

    async def _refuse_to_guess(self, file: PlannedFile) -> None:
        """Raises if a file of Hadoop's, without stamp, may be the job's: etags of encrypted parts prove nothing."""
        target = self.context.layout.target(file.destination)
        status = await status_or_none(self.context.store, target)
        if status is None or status.is_directory or status.size != file.size:
            return
        raise OutcomeUnknownError(
            f"cannot tell whether what exists at {file.destination} is the job's: it has its length, and nothing "
            "proves what Hadoop's tasks wrote there",
            operation=self.name,
            path=target,
            next_step=f"look at it, delete it if it is the job's, then call {self.context.recover_call(rollback=True)}",
        )

    async def _deleted(self, file: PlannedFile) -> bool:
        target = self.context.layout.target(file.destination)
        status = await status_or_none(self.context.store, target)
        if status is None or status.identity is None or not is_file_of(status, file):
            return False
        try:
            await delete_seen(self.context.store, target, identity=status.identity)
        except StorePreconditionError:
            # Another process has replaced it since the look.
            return True
        return True


class RollBackBlocks(RollBackUploads):
    """The rollback of blocks: deletes published files that are still the job's, and uses the other blocks up.

    No call drops blocks, and while they exist a delayed request can create a file of them. So an unpublished
    file is published and deleted at once: the job was decided, so a reader may see the file for a moment, and
    delayed requests have no effect afterwards. Two kinds of files lack this fence: one whose name another file
    has, which refuses the delayed request as long as it exists; and an empty one, which uses no blocks.

    Cost: 2 calls per published file, 4 per unpublished one.
    """

    async def _end(self, file: PlannedFile) -> None:
        if file.upload is None or await self._deleted(file) or not file.upload.etags:
            return
        target = self.context.layout.target(file.destination)
        # Used up before, or dropped; or another file has the name.
        with suppress(StorePartsError, StoreExistsError):
            await finish_block_list(
                self.context.store, target, file.upload.etags, stamp=file.stamp, size=file.size, exclusive=True
            )
        await self._deleted(file)
