"""Opens task attempts; the class of calls that open with `await` or with `async with`."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Generator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from committer.api.task import TaskAttempt
from committer.committers.advising import advising, shown_options
from committer.committers.context import open_context
from committer.committers.opened_store import closed_on_failure, fresh_statistics, is_owned
from committer.committers.registry import committer_for
from committer.errors import ConfigurationError
from committer.layout import check_number
from committer.logs import audit
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import StageContext
from committer.stages.task_output import AttemptIdentity
from committer.stores.registry import find_store


class _Managed(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


T = TypeVar("T", bound=_Managed)


class Opening(Generic[T]):
    """A call that opens something: ``await`` it, or enter it with ``async with``.

    It warns of a forgotten ``await`` itself: Python's warning would name this class, which users do not know.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], what: str) -> None:
        self._make = make
        self._what = what
        self._begun = False
        self._made: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        self._begun = True
        return self._make().__await__()

    async def __aenter__(self) -> T:
        self._begun = True
        self._made = await self._make()
        return self._made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made is not None:
            await self._made.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        state = "opened" if self._begun else "not opened yet: await it, or enter it with `async with`"
        return f"<{self._what}(...): {state}>"

    def __del__(self) -> None:
        if not self._begun:
            warnings.warn(
                f"{self._what}(...) was never awaited, nor entered with `async with`: nothing was opened",
                RuntimeWarning,
                stacklevel=2,
            )

    if not TYPE_CHECKING:  # a type checker must go on refusing what these refuse

        def __enter__(self) -> None:
            self._begun = True
            raise TypeError(f"use `async with {self._what}(...)`; plain `with` goes with committer.sync")

        def __exit__(self, *of: object) -> None: ...

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self._begun = True  # what follows says it better than the warning
            raise AttributeError(
                f"{self._what}(...) was neither awaited nor entered, so it has no {name}: "
                f"use `async with {self._what}(...) as ...`, or `... = await {self._what}(...)`",
                name=name,
                obj=self,
            )


def open_task(
    spec: JobSpec,
    *,
    task: int,
    attempt: int = 0,
    storage_options: Mapping[str, object] | None = None,
) -> Opening[TaskAttempt]:
    """Opens a task attempt of a job that another process set up.

    ``async with committer.open_task(spec, task=3, attempt=1) as task: ...`` commits it on a clean exit and
    aborts it on an exception; afterwards ``task.task_commit`` is the message for the driver.

    Args:
        spec: The job, from ``job.spec``.
        task: The task's number, from 0.
        attempt: The attempt's number, from 0.
        storage_options: Options of the store, resolved in this process.

    Raises:
        JobNotFoundError: The job was never set up, or was cleaned up.
        JobDecidedError: The job is decided.
    """
    if not isinstance(spec, JobSpec):
        raise ConfigurationError(
            f"open_task joins a job by its JobSpec, not by a {type(spec).__name__}",
            operation="open_task",
            next_step="give job.spec, as the driver's open_job has it: it can be pickled",
        )
    check_number(task, "task")
    check_number(attempt, "attempt")

    async def make() -> TaskAttempt:
        store = await find_store(StorePath.from_uri(spec.destination), storage_options)
        owned = is_owned(storage_options)
        async with closed_on_failure(store, owned=owned):
            context = await open_context(spec, store, owned=owned)
        try:
            with advising(lambda: shown_options(context.layout.destination, storage_options)):
                return await make_attempt(context, task=task, attempt=attempt, owns_store=True)
        except BaseException:
            await context.store.close()
            raise

    return Opening(make, "open_task")


async def make_attempt(
    context: StageContext,
    *,
    task: int,
    attempt: int,
    owns_store: bool,
    committed: Callable[[TaskCommit], None] | None = None,
    left: Callable[[], None] | None = None,
) -> TaskAttempt:
    """Sets a task attempt up: 2 calls."""
    context = fresh_statistics(context)
    committer = committer_for(context.spec.committer)
    identity = AttemptIdentity(task, attempt, context.runtime.nonce())
    with audit(ji=context.layout.job_id, ta=context.layout.task_attempt_id(task, attempt)):
        directory = await committer.setup_task(context, identity)
    return TaskAttempt(context, committer, identity, directory, owns_store=owns_store, committed=committed, left=left)
