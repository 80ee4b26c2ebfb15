"""Opening a task attempt: of a job that another process set up, or of a Job in this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from committer.audit import audit
from committer.committers.advising import advising, shown_options
from committer.committers.context import open_context
from committer.committers.fresh import fresh_statistics
from committer.committers.opened_store import closed_on_failure, is_owned
from committer.committers.registry import committer_for
from committer.errors import ConfigurationError
from committer.layout import check_number
from committer.opening import Opening
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import StageContext
from committer.stages.task_output import AttemptIdentity
from committer.stores.registry import find_store
from committer.task import TaskAttempt


def open_task(
    spec: JobSpec,
    *,
    task: int,
    attempt: int = 0,
    storage_options: Mapping[str, object] | None = None,
) -> Opening[TaskAttempt]:
    """Opens a task attempt of a job that another process set up.

    ``async with committer.open_task(spec, task=3, attempt=1) as task: ...`` commits it on a clean exit and aborts it on
    an exception; afterwards ``task.task_commit`` is the message for the driver.

    Args:
        spec: The job, from ``job.spec``.
        task: The task's number, from 0.
        attempt: The attempt's number, from 0.
        storage_options: How to reach the store, resolved in this process.

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
