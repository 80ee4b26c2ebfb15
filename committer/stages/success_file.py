"""`_SUCCESS` is written when all is in place; an older one, or one that says what is gone, is taken away."""

from __future__ import annotations

import contextlib

from committer.errors import (
    JobStateError,
    OutcomeUnknownError,
    RecordError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
)
from committer.events import names
from committer.flow.workers import run_workers
from committer.layout import SUCCESS
from committer.paths import StorePath, by_hand
from committer.records.job_state import JobOutcome
from committer.records.success import SuccessData, decode_success, encode_success
from committer.stages.base import Stage, StageContext
from committer.stages.identity import is_regular
from committer.stages.job_directory import other_job_stands
from committer.stages.own_records import read_outcome
from committer.stages.planned_file import PlannedFile
from committer.stages.publish import Published
from committer.stages.replace_lock import is_held_since_decision
from committer.stages.success_content import DECIDED_BY
from committer.stages.take_away import (
    NotGivenBackError,
    give_back,
    is_taken_place,
    is_told,
    move_away,
    remove_apart,
    taken_place,
)
from committer.stages.validate_output import problem_with
from committer.stores.conditions import CONDITIONAL_DELETE
from committer.stores.helpers import children_of, create_exclusively, status_or_none

_ROUNDS = 5
_READ = "read"


class SaveSuccess(Stage[SuccessData, None]):
    """Writes `_SUCCESS` where none stands; an older one that came since the old one was set aside makes room first.

    So a driver that was stopped since the outcome, while another one finished the job and later jobs came, replaces
    nothing. Nor does it write once its job's directory is gone while another job has one, or when a file that it would
    name does not stand any more: what replaced that may have left no `_SUCCESS`. Where it still writes while a
    later job has set the one before it aside, that job takes this one away when it ends.

    Args:
        context: The job.
        outcome: The outcome that stood; None when the job's directory is known to be gone.
        replacing: The job took the replace lock before it was decided.
        published: What `_SUCCESS` names; None when the caller knows that it stands.

    Preconditions: outcome `committed` stands: every file of every committed task is in place (G9).
    Postconditions: `_SUCCESS` names this job, or one that committed later.
    Cost: 1 call (2 on stores that write first and rename after); some 7 more where another one stands; once the job's
    directory is gone one, and one or two for each file that `_SUCCESS` names.
    Hadoop: ``SaveSuccessFileStage``.
    """

    name = names.COMMITTER_COMMIT_JOB
    statistic = names.JOB_STAGE_SAVE_SUCCESS_MARKER

    def __init__(
        self,
        context: StageContext,
        *,
        outcome: JobOutcome | None = None,
        replacing: bool = False,
        published: Published | None = None,
    ) -> None:
        super().__init__(context)
        self._outcome = outcome
        self._replacing = replacing
        self._published = published

    async def execute(self, value: SuccessData) -> None:
        """Writes it; a directory of that name is a definite refusal."""
        layout, store = self.context.layout, self.context.store
        data = encode_success(value)
        # Below the job's directory: on a disk this write fails once another driver has finished the job.
        temporary = layout.success_temporary(self.context.driver) if self._outcome is not None else None
        if not self._replacing:
            # With the lock what was taken away is older, whatever it says.
            await give_back_moved(self.context, value, self._outcome)
        try:
            if temporary is None and await self._is_past():
                return
            for tries_left in reversed(range(_ROUNDS)):
                try:
                    found = await create_exclusively(
                        store, layout.success, data, temporary=temporary, durable=self.context.durable
                    )
                except StoreNotFoundError as error:
                    if not await self._directory_stands(error, temporary):
                        temporary = None
                        if await self._is_past():
                            return
                    if not tries_left:
                        raise
                    continue
                if found == data:
                    if temporary is None:
                        await withdraw_success(self.context, value, self._published)
                    return
                # What is moved away after the last try would be missed.
                if not tries_left or not await self._make_room(value):
                    return
        except StoreIsADirectoryError as error:
            raise JobStateError(
                f"a directory stands at {layout.success}: the job is committed, but its marker cannot be written",
                operation=self.name,
                path=layout.success,
                outcome="committed",
                next_step=f"remove {by_hand(layout.success)} by hand",
            ) from error

    async def _directory_stands(self, error: StoreNotFoundError, temporary: StorePath | None) -> bool:
        """Whether it was not the job's directory that a put missed, but another `_SUCCESS`, gone as it was read."""
        if error.operation == _READ:
            error.message = (
                "what stands in the way of the job's own _SUCCESS cannot be read: it is a link that leads nowhere, or "
                "other jobs took it away each time"
            )
            return temporary is not None and await _is_unfinished(self.context, self._outcome)
        if temporary is None:
            # The destination itself is gone.
            raise error
        return False

    async def _is_past(self) -> bool:
        """Whether another job replaced what this one, which is gone, published, or may be about to."""
        try:
            if await other_job_stands(self.context.store, self.context.layout):
                return True
        except StoreNotFoundError:
            pass
        return not await _still_stands(self.context, self._published)

    async def _make_room(self, value: SuccessData) -> bool:
        return await make_room_for(self.context, value, self._outcome, replacing=self._replacing)


async def withdraw_success(context: StageContext, value: SuccessData, published: Published | None) -> bool:
    """Takes this job's own `_SUCCESS` away where it came when the job was over, and the files it names were gone.

    A create that is under way while another driver ends the job, and later jobs replace its data, cannot be refused by
    a store that takes late writes; nor the one of a driver that stands still once it saw that its job's directory is
    gone. One call for each file that is named; some 7 more where one does not stand. Where the store is not told what
    to take, it goes to a directory that is made for it and deleted, so that a move which comes late takes nothing; the
    job's own, which is made again for that, the caller removes.

    Returns:
        Whether it was taken away.

    Raises:
        OutcomeUnknownError: Another job's may lie in the directory that was made. Nothing was deleted.
    """
    if published is None or not published.named or await _still_stands(context, published):
        # A driver that knows no file by its identity found the marker, which an earlier one wrote, and lets it be.
        return False
    layout, store = context.layout, context.store
    able = CONDITIONAL_DELETE.of(store)
    for _round in range(_ROUNDS):
        standing = await status_or_none(store, layout.success)
        if standing is None or not _is_same(await _content(context, layout.success), value):
            return False
        if able is not None and standing.identity:
            with contextlib.suppress(StorePreconditionError):
                return await able.delete_file_if(layout.success, identity=standing.identity)
            return False
        if await remove_apart(
            context, layout.success, identity=standing.identity, is_own=lambda found: _is_same(found, value)
        ):
            return True
    return False


async def _still_stands(context: StageContext, published: Published | None) -> bool:
    """Whether every file that a `_SUCCESS` would name is the one that was committed. One call each, of a hundred."""
    if published is None:
        return True
    if published.files and not published.named:
        return False
    problems: list[str] = []

    async def look(file: PlannedFile) -> None:
        problem = None if problems else await problem_with(context, file)
        if problem is not None:
            problems.append(problem)

    await run_workers(published.named, look, workers=context.config.io_concurrency, operation=SaveSuccess.name)
    return not problems


async def make_room_for(
    context: StageContext,
    value: SuccessData,
    outcome: JobOutcome | None,
    *,
    replacing: bool = False,
    of_this_engine: bool = False,
) -> bool:
    """Moves an older `_SUCCESS` than this one into a directory of the job; False when what stands there stays.

    Only while the job is not finished, looked at after what stands there: what came later than that is not moved.

    Args:
        context: The job that writes `_SUCCESS`, or puts it back.
        value: What is to stand there.
        outcome: The job's outcome as this driver knows it; None when it is gone.
        replacing: The job took the replace lock. While it holds the one that it was decided with, no other job can have
            ended since, so what stands there is older, whatever it says.
        of_this_engine: Only what a driver of this engine wrote makes room: a committer of Hadoop's, whose `_SUCCESS`
            may say nothing, replaces an older one when its job ends, and never comes late.
    """
    layout, store = context.layout, context.store
    standing = await status_or_none(store, layout.success)
    if standing is None:
        return True
    found = await _content(context, layout.success)
    if outcome is None or _is_same(found, value) or (of_this_engine and not _is_of_this_engine(found)):
        return False
    decided_by = value.diagnostics.get(DECIDED_BY, "")
    if not (_is_older(found, value) or (replacing and await is_held_since_decision(context, decided_by))):
        return False
    if not await _is_unfinished(context, outcome):
        return False
    # Where it is not taken another driver was faster, and what stands there now is looked at again. It goes to a
    # directory that no job leaves: one that keeps its outcome keeps its own, and a move that comes late could go there.
    place = taken_place(context, layout.drivers)
    try:
        await move_away(context, layout.success, place, identity=standing.identity)
    except StoreExistsError:
        await _give_back_newest(context, [place], of_this_engine=of_this_engine)
    except StoreOutcomeUnknownError:
        pass
    return True


async def give_back_moved(
    context: StageContext, value: SuccessData, outcome: JobOutcome | None, *, of_this_engine: bool = False
) -> None:
    """Gives back a newer `_SUCCESS` than this one, which another driver of the job moved by mistake before it died.

    For a driver that goes on in its place, while the job is not finished. One listing where a rename is not told what
    to move, some 6 calls more for what lies there; else, and for the driver that ended the job, no call.

    Args:
        context: The job.
        value: What is to stand there. What is older was taken away on purpose.
        outcome: The job's outcome as this driver knows it; None when it is gone.
        of_this_engine: As for `make_room_for`.

    Raises:
        OutcomeUnknownError: It could not be given back. Nothing was deleted.
    """
    if is_told(context.store) or outcome is None or outcome.driver == context.driver:
        return
    held: list[StorePath] = []
    for child in await children_of(context.store, context.layout.drivers):
        if is_taken_place(child.path) and is_regular(child):
            marker = _decoded(await _content(context, child.path))
            if marker is not None and marker.timestamp > value.timestamp:
                held.append(child.path)
    # Once the job is finished another one may have replaced what a newer marker names, and have left none.
    if held and await _is_unfinished(context, outcome):
        await _give_back_newest(context, held, of_this_engine=of_this_engine)


async def _give_back_newest(context: StageContext, taken_to: list[StorePath], *, of_this_engine: bool) -> None:
    """Gives back the newest of markers that were taken by mistake, unless a newer one stands in its place by now.

    Where a rename is not told what to move, and several jobs end at once. What is taken away for that may be another's
    by mistake, too: the newest of all stands in the end.

    Args:
        context: The job.
        taken_to: Where they were taken to.
        of_this_engine: As for `make_room_for`.

    Raises:
        OutcomeUnknownError: It could not be given back: others kept coming, or a call was refused. Nothing was deleted.
    """
    store, success = context.store, context.layout.success
    held, failure, place = [*taken_to], list[StoreError](), taken_to[0]
    try:
        # The last round only looks: what was taken in the one before may be the newest.
        for tries_left in reversed(range(_ROUNDS + 1)):
            found = [(_decoded(await _content(context, taken)), taken) for taken in held]
            markers = [(marker, taken) for marker, taken in found if marker is not None]
            if not markers:
                return
            newest, place = max(markers, key=lambda each: each[0].timestamp)
            standing, another = await status_or_none(store, success), taken_place(context, context.layout.drivers)
            if standing is not None:
                there = await _content(context, success)
                if not _is_older(there, newest) or (of_this_engine and not _is_of_this_engine(there)):
                    return
            if not tries_left:
                raise NotGivenBackError(place, success, failure[0], or_older=True) from failure[0]
            try:
                if standing is not None:
                    await move_away(context, success, another, identity=standing.identity)
                await give_back(store, place, success, or_older=True)
                return
            except (StoreExistsError, StoreOutcomeUnknownError) as error:
                held.append(another)
                failure = [error]
    except (StoreError, OutcomeUnknownError) as error:
        if isinstance(error, NotGivenBackError) and error.place == place:
            raise
        raise NotGivenBackError(place, success, error, or_older=True) from error


async def _is_unfinished(context: StageContext, outcome: JobOutcome | None) -> bool:
    """Whether the outcome that a driver knows still stands, and no driver has finished the job. One call."""
    if outcome is None:
        return False
    now = await read_outcome(context.store, context.layout)
    return now is not None and not now.finished and (now.driver, now.created) == (outcome.driver, outcome.created)


async def _content(context: StageContext, path: StorePath) -> bytes | None:
    """What a file says; None when it is gone, or too long to be a record."""
    try:
        return await context.store.read(path, limit=context.config.record_size_limit)
    except (StoreNotFoundError, RecordError):
        return None


def _is_older(found: bytes | None, value: SuccessData) -> bool:
    """Whether what was read speaks of a job that committed before. What does not say is no job's of this engine."""
    marker = _decoded(found)
    return marker is None or marker.timestamp < value.timestamp


def _is_of_this_engine(found: bytes | None) -> bool:
    marker = _decoded(found)
    return marker is not None and DECIDED_BY in marker.diagnostics


def _is_same(found: bytes | None, value: SuccessData) -> bool:
    """Whether what was read speaks of the same decision of the same job."""
    marker = _decoded(found)
    if marker is None or marker.jobId != value.jobId:
        return False
    return marker.diagnostics.get(DECIDED_BY) == value.diagnostics.get(DECIDED_BY)


def _decoded(data: bytes | None) -> SuccessData | None:
    try:
        return decode_success(data or b"", source=SUCCESS)
    except RecordError:
        return None
