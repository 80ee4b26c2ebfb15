"""The blocking classes Job, TaskAttempt and TaskFile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from committer.api import job as job_engine
from committer.api import task as task_engine
from committer.api import task_files
from committer.committers.results import JobReport
from committer.errors import JobStateError, TaskError
from committer.flow.portal import is_ending, wait_for
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.sync.blocking import Blocking, blocking_method, direct_method, without_await


class TaskFile(task_files.BlockingTaskFile):
    """A binary file being written by a task attempt, for any thread: ``with task.open(name) as f: f.write(b"...")``.

    Closing the file makes it part of the attempt; an exception in the block removes the file, and the attempt
    can no longer commit. At most a megabyte is held in memory.
    """

    _instead = without_await(task_files.IN_ANOTHER_PROCESS)

    def __init__(self, file: task_files.TaskFile) -> None:
        super().__init__(file, asyncio.get_running_loop())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and is_ending():
            self._end()
        else:
            super().__exit__(kind, error, trace)

    def _wait(self, call: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._check_process("write")
        wait_for(call, "write")

    async def _undo(self, interrupt: BaseException) -> None:
        await self._file._abort_after(interrupt)


class TaskAttempt(Blocking):
    """Run of a task attempt, as `committer.TaskAttempt`. Leaving its block commits it, or aborts it on an error.

    Several threads may write files of one attempt. Each file is a binary file object, for pyarrow, pandas and
    the like too: `open_blocking` is the same as `open`.
    """

    _refused = TaskError
    _instead = TaskFile._instead
    _engine: task_engine.TaskAttempt

    needs_task_commit: bool = task_engine.TaskAttempt.needs_task_commit

    def __init__(self, attempt: task_engine.TaskAttempt) -> None:
        super().__init__(attempt)
        self.task: int = attempt.task
        self.attempt: int = attempt.attempt
        self.nonce: str = attempt.nonce
        self.directory: StorePath = attempt.directory

    open: Final = blocking_method(task_engine.TaskAttempt.open, TaskFile)
    open_absolute: Final = blocking_method(task_engine.TaskAttempt.open_absolute, TaskFile)
    open_blocking: Final = open
    open_absolute_blocking: Final = open_absolute
    work_path: Final = direct_method(task_engine.TaskAttempt.work_path)
    count: Final = direct_method(task_engine.TaskAttempt.count)
    commit: Final = blocking_method(task_engine.TaskAttempt.commit)
    abort: Final = blocking_method(task_engine.TaskAttempt.abort)
    check_job: Final = blocking_method(task_engine.TaskAttempt.check_job)

    @property
    def task_commit(self) -> TaskCommit:
        """The message for the driver, once the attempt committed; before that a TaskError is raised."""
        return self._engine.task_commit

    async def _undo(self, interrupt: BaseException) -> None:
        await self._engine.__aexit__(type(interrupt), interrupt, interrupt.__traceback__)

    async def _free(self) -> None:
        # The block is not left: at interpreter exit nothing is decided for the user.
        if self._engine._owns_store:
            await self._engine._context.store.close()


class Job(Blocking):
    """A job in its driver's process, as `committer.Job`. Leaving its block commits it, or aborts it on an error.

    Several threads may use one Job. In a forked child every method raises, and leaving the block does nothing,
    so that a child that ends inside it decides nothing for its parent.

    Attributes:
        spec: For `open_task` and `attach_job` in other processes.
    """

    _refused = JobStateError
    _instead = without_await(job_engine.Job._instead)
    _engine: job_engine.Job

    is_commit_repeatable: bool = job_engine.Job.is_commit_repeatable
    is_recovery_supported: bool = job_engine.Job.is_recovery_supported

    def __init__(self, job: job_engine.Job) -> None:
        super().__init__(job)
        self.spec: JobSpec = job.spec

    @property
    def job_id(self) -> str:
        """The id in `spec`."""
        return self._engine.job_id

    @property
    def report(self) -> JobReport | None:
        """The report of the committed job; None before."""
        return self._engine.report

    listen: Final = direct_method(job_engine.Job.listen)
    task_attempt: Final = blocking_method(job_engine.Job.task_attempt, TaskAttempt)
    abort_task: Final = blocking_method(job_engine.Job.abort_task)
    recover_task: Final = blocking_method(job_engine.Job.recover_task)
    commit: Final = blocking_method(job_engine.Job.commit)
    abort: Final = blocking_method(job_engine.Job.abort)
    plan: Final = blocking_method(job_engine.Job.plan)
    _close: Final = blocking_method(job_engine.Job.close)

    def close(self) -> None:
        """Frees what this process opened, and decides nothing. Not needed in an exit handler, but allowed."""
        if not is_ending():
            self._close()

    if not TYPE_CHECKING:  # a type checker must go on refusing what this refuses

        async def __aenter__(self) -> None:
            raise TypeError(
                "use plain `with` for what committer.sync opens; `async with` goes with committer.open_job and "
                f"committer.attach_job. Job {self.job_id} stays as it is: "
                f"`committer.sync.cleanup({self.spec.destination!r}, job_id={self.job_id!r})` removes an undecided one"
            )

        async def __aexit__(self, *of: object) -> None: ...

    async def _undo(self, interrupt: BaseException) -> None:
        await self._engine.close()

    async def _free(self) -> None:
        try:
            self._engine._warn_if_left()
        finally:
            # Also if warnings are errors.
            await self._engine.close()
