"""Reads and writes this engine's records of a job: setup, intent, decision, outcome. One call each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from committer.driver_process import DriverProcess, DriverState, state_of
from committer.errors import ConfigurationError, RecordError, StoreNotFoundError
from committer.flow.runtime import current_runtime
from committer.layout import JobLayout, check_setup
from committer.paths import StorePath
from committer.records.job_state import Decision, Intent, JobOpened, JobOutcome, JobSetup, R, decode_record, limit_of
from committer.stages.base import StageContext, abandon_advice
from committer.stages.state.job_directory import JobDirectory, JobState
from committer.stores.base import Store
from committer.stores.helpers import create_exclusively

Drivers: TypeAlias = Sequence[tuple[DriverProcess | None, DriverState]]
"""The processes that drive a job, as far as records name them, and whether each runs."""

_SMALL_BYTES: Final = 1 << 20
"""Records up to this length are read concurrently, longer ones one at a time to bound memory."""

_turns: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = WeakKeyDictionary()


@contextmanager
def _with_abandon_advice(layout: JobLayout) -> Iterator[None]:
    """Adds to the error of a damaged record how to end its job."""
    try:
        yield
    except RecordError as error:
        if error.field != "version":
            error.next_step = (
                f"look at the destination: it was damaged, or another program wrote it; {abandon_advice(layout)}"
            )
        raise


async def put_record(context: StageContext, path: StorePath, data: bytes) -> None:
    """Writes a record that only this driver writes: one call."""
    temporary = context.layout.temporary_of(path, context.driver)
    await context.store.put(path, data, temporary=temporary, durable=context.durable)


async def create_record(context: StageContext, path: StorePath, data: bytes, kind: type[R]) -> bytes:
    """Creates a record, or returns the one that another driver created: 1 to 3 calls, `create_exclusively`'s errors."""
    temporary = context.layout.temporary_of(path, context.driver)
    return await create_exclusively(
        context.store, path, data, temporary=temporary, durable=context.durable, limit=limit_of(kind)
    )


async def read_setup(store: Store, layout: JobLayout) -> JobSetup:
    """Reads the setup record (`StoreNotFoundError` if it does not exist, `RecordError` if it is another): one call."""
    with _with_abandon_advice(layout):
        setup = await _read(store, layout.setup, JobSetup)
        try:
            check_setup(setup.spec.setup)
        except ConfigurationError as error:
            raise RecordError(error.message, field="setup", path=layout.setup, operation="read_setup") from error
    return setup


async def read_record(store: Store, path: StorePath, kind: type[R]) -> R | None:
    """Reads one of this engine's records, None if it does not exist, `RecordError` if it is another: one call."""
    try:
        return await _read(store, path, kind)
    except StoreNotFoundError:
        return None


async def _read(store: Store, path: StorePath, kind: type[R]) -> R:
    """Reads and decodes a record: one call, two if it is longer than a megabyte."""
    limit = limit_of(kind)
    try:
        data = await store.read(path, limit=min(limit, _SMALL_BYTES))
    except RecordError:
        if limit <= _SMALL_BYTES:
            raise
    else:
        return decode_record(data, kind, source=str(path))
    async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        return decode_record(await store.read(path, limit=limit), kind, source=str(path))


async def read_decision(store: Store, layout: JobLayout) -> Decision | None:
    """Reads the decision, None if it does not exist: one call."""
    with _with_abandon_advice(layout):
        return await read_record(store, layout.decision, Decision)


async def read_outcome(store: Store, layout: JobLayout) -> JobOutcome | None:
    """Reads the outcome, None if it does not exist: one call."""
    with _with_abandon_advice(layout):
        return await read_record(store, layout.outcome, JobOutcome)


async def read_kept(store: Store, layout: JobLayout) -> JobOutcome | None:
    """Reads the outcome that a committed job keeps, None if it does not exist: one call."""
    with _with_abandon_advice(layout):
        return await read_record(store, layout.kept, JobOutcome)


async def is_open(store: Store, layout: JobLayout) -> bool | None:
    """Whether the job was opened; None if neither opened nor closed: one call. Hadoop's jobs count as open."""
    if not layout.setup_name:
        return True
    with _with_abandon_advice(layout):
        opened = await read_record(store, layout.opened, JobOpened)
    return opened.state == "open" if opened is not None else None


async def read_intent(store: Store, found: JobDirectory) -> Intent | None:
    """Reads the newest intent, by drivers' clocks: the latest try knows best which task attempts won. One call each."""
    return max(await _read_intents(store, found), key=lambda intent: intent.created, default=None)


async def read_job_attempt(store: Store, found: JobDirectory) -> int | None:
    """Reads which attempt of a Hadoop job a driver decided, or began, to commit; None if none did: 0 or 1 call each."""
    if found.decided:
        decision = await read_decision(store, found.layout)
        return decision.job_attempt if decision is not None else None
    intent = await read_intent(store, found)
    return intent.job_attempt if intent is not None else None


async def read_drivers(store: Store, found: JobDirectory) -> Drivers:
    """Reads the processes that set a job up or began to commit it, None for one not recorded: one call each."""
    if not found.set_up:
        return []
    drivers = [(await read_setup(store, found.layout)).process]
    drivers += [intent.process for intent in await _read_intents(store, found)]
    return await current_runtime().run_blocking(lambda: [(driver, state_of(driver)) for driver in drivers])


async def _read_intents(store: Store, found: JobDirectory) -> list[Intent]:
    standing: list[Intent] = []
    for name in found.intents:
        with _with_abandon_advice(found.layout):
            intent = await read_record(store, found.layout.job_directory / name, Intent)
        if intent is not None:
            standing.append(intent)
    return standing


async def read_state(store: Store, found: JobDirectory) -> tuple[JobState, int | None, bool]:
    """Reads the job's state, the files that its decision publishes, and whether its outcome is kept: 0 to 2 calls."""
    decision = await read_decision(store, found.layout) if found.decided else None
    files = decision.files if decision is not None else None
    if found.keeps_outcome:
        kept = await read_kept(store, found.layout)
        return "committed", kept.files if kept is not None else files, True
    outcome = await read_outcome(store, found.layout) if found.ended else None
    if outcome is not None:
        return outcome.outcome, outcome.files if outcome.outcome == "committed" else files, False
    if decision is None:
        return "open", None, False
    return ("committing", files, False) if decision.decision == "commit" else ("aborted", None, False)
