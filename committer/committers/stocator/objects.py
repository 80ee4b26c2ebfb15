"""The objects that runs of task attempts began: found by the lists in the job's directory, and deleted."""

from __future__ import annotations

from collections.abc import Iterable

from committer.committers.stocator.names import is_named_by
from committer.errors import RecordError, StoreNotFoundError
from committer.flow.together import together
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.records.job_state import Decision, JobOutcome, JobSetup, Winner
from committer.stages.base import StageContext
from committer.stages.own_records import read_decision, read_outcome, read_setup
from committer.stages.planned_files import decode_record, read_winner
from committer.stages.upload_lists import contained, end_uploads, parts_of_list
from committer.stores.uploads import UPLOADS

_OPERATION = "delete_objects"


async def objects_of(context: StageContext, run: StorePath) -> list[StorePath]:
    """The objects that a run's list names: one listing, and a read for each part of it.

    Only what has the run in its name.
    """
    layout, found = context.layout, set[StorePath]()
    async for part in parts_of_list(context, run):
        found.update(layout.target(listed.name) for listed in contained(context, run, part))
    return sorted((path for path in found if is_named_by(path, run.name)), key=str)


async def pending_at(context: StageContext, paths: Iterable[StorePath]) -> list[tuple[StorePath, str]]:
    """Uploads of long files that a writer left, by path and id: one listing for each directory."""
    wanted = set(paths)
    found: list[tuple[StorePath, str]] = []
    if not context.store.capabilities.multipart:
        return found

    async def look(directory: StorePath) -> None:
        uploads = UPLOADS.required(context.store, "list_uploads", directory)
        found.extend([(up.path, up.upload_id) async for up in uploads.list_uploads(directory) if up.path in wanted])

    directories = {path.parent for path in wanted}
    await run_workers(directories, look, workers=context.config.io_concurrency, operation=_OPERATION)
    return found


async def delete_objects(context: StageContext, paths: Iterable[StorePath]) -> None:
    """Ends what is under way to these names, then deletes what stands there. Only one run gives such names."""
    wanted = list(paths)
    await end_uploads(context, await pending_at(context, wanted))
    await run_workers(wanted, context.store.delete_file, workers=context.config.io_concurrency, operation=_OPERATION)


async def losing_runs(context: StageContext, runs: list[StorePath]) -> list[StorePath]:
    """The runs of which nothing counts, of a job whose fate is known; none of any other.

    Three reads, and one for each task attempt of the winners that ran more than once.
    """
    setup, decision, outcome = await _fate(context)
    if setup is None:
        return []
    if outcome is not None and outcome.outcome == "rolled-back":
        return runs
    if decision is None:
        return []
    if decision.decision == "abort":
        return runs if outcome is None else []
    return await _but_winners(context, decision, runs)


async def _fate(context: StageContext) -> tuple[JobSetup | None, Decision | None, JobOutcome | None]:
    store, layout = context.store, context.layout
    setup: JobSetup | None = None
    decision: Decision | None = None
    outcome: JobOutcome | None = None

    async def set_up() -> None:
        nonlocal setup
        try:
            setup = await read_setup(store, layout)
        except StoreNotFoundError:
            return

    async def decided() -> None:
        nonlocal decision
        decision = await read_decision(store, layout)

    async def ended() -> None:
        nonlocal outcome
        outcome = await read_outcome(store, layout)

    try:
        await together(set_up(), decided(), ended())
    except RecordError:
        # Of a job that is given up because its records cannot be read, nothing is known to have lost.
        return None, None, None
    return setup, decision, outcome


async def _but_winners(context: StageContext, decision: Decision, runs: list[StorePath]) -> list[StorePath]:
    winners = {winner.task_attempt: winner for winner in decision.winners if winner.files}
    by_attempt: dict[str, list[StorePath]] = {}
    for run in runs:
        by_attempt.setdefault(run.name.rpartition("-")[0], []).append(run)
    lost: list[StorePath] = []

    async def sort(item: tuple[str, list[StorePath]]) -> None:
        attempt, of_attempt = item
        winner = winners.get(attempt)
        if winner is None:
            lost.extend(of_attempt)
        elif len(of_attempt) > 1:
            won = await _run_of(context, winner)
            lost.extend(run for run in of_attempt if won and run.name != won)

    await run_workers(by_attempt.items(), sort, workers=context.config.io_concurrency, operation=_OPERATION)
    return sorted(lost, key=str)


async def _run_of(context: StageContext, winner: Winner) -> str:
    """The run that wrote a winner's files; empty where its record cannot be read any more."""
    try:
        data = await read_winner(context, winner)
        sources = decode_record(context, winner.record, data, winner.digest)[1].sources
    except (StoreNotFoundError, RecordError):
        return ""
    return sources[0].partition("/")[0] if sources else ""
