"""The blocking TaskAttempt, and the files it hands out."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from committer import blocking_files, task_files, task_opening
from committer import task as engine
from committer.advice import tell_blocking_caller
from committer.errors import TaskError
from committer.flow.one_process import OneProcess
from committer.paths import StorePath
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.sync.portal import free_at_exit, is_ending, wait_for

T = TypeVar("T")

_IN_ANOTHER_PROCESS: Final = task_files.IN_ANOTHER_PROCESS.replace("committer.", "committer.sync.")


class TaskFile(blocking_files.BlockingTaskFile):
    """A binary file being written by a task attempt, for any thread: ``with task.open(name) as f: f.write(b"...")``.

    Closing the file makes it part of the attempt; an exception in the block removes the file, and the attempt can no
    longer commit. At most a megabyte is held in memory.
    """

    _instead = _IN_ANOTHER_PROCESS

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


class TaskAttempt(OneProcess):
    """One run of one task attempt. Leaving its block commits it; leaving with an exception aborts it.

    Several threads may write files of one attempt. A forked child may not use it, and leaving the block does nothing
    there. It cannot be pickled or copied; another process opens a task attempt of its own: `open_task`.

    Attributes:
        task: The task's number.
        attempt: The attempt's number.
        nonce: Random; part of every path of this run, so that two runs of one attempt never share a byte.
        directory: The task attempt directory.
    """

    _refused = TaskError
    _instead = _IN_ANOTHER_PROCESS

    needs_task_commit: bool = engine.TaskAttempt.needs_task_commit
    """MapReduce's question. Always: an attempt that wrote nothing must still say that its task is done (G9)."""

    def __init__(self, attempt: engine.TaskAttempt) -> None:
        super().__init__()
        self.task: int = attempt.task
        self.attempt: int = attempt.attempt
        self.nonce: str = attempt.nonce
        self.directory: StorePath = attempt.directory
        self._attempt = attempt
        # The engine claims names without awaiting, which makes a step of it on a loop but not among threads.
        self._claiming = threading.Lock()
        free_at_exit(self)

    def __repr__(self) -> str:
        return repr(self._attempt)

    def open(self, name: str) -> TaskFile:
        """Opens a file to write: ``with task.open("a=1/part-0.csv") as f: f.write(b"...")``.

        Costs one call, and one a directory this attempt did not write to yet; closing it none that depends on the
        number of files.

        Args:
            name: Where it goes, relative to the destination.

        Raises:
            InvalidPathError: No destination could hold the name, or it is reserved.
            TaskError: The attempt is over, or the name was opened before, or it is a directory of another file.
            JobNotFoundError: The job was cleaned up.
        """
        return self._opened(lambda: self._attempt.open(name))

    def open_absolute(self, path: str | os.PathLike[str] | StorePath) -> TaskFile:
        """Opens a file to write that goes to an absolute path outside the destination, in the same store.

        ``with task.open_absolute("file:///warehouse/custom/part-0.parquet") as f: f.write(b"...")``. It is written
        below the job's directory like any other, and published with them. Costs as `open`.

        Args:
            path: Where it goes: a URI of the destination's store, or an absolute path in it; below one of the job's
                `CommitterConfig.absolute_roots`.

        Raises:
            InvalidPathError: It is relative, of another store, below none of the roots, or reserved.
            TaskError: The attempt is over, or the path was opened before, or it is a directory of another file.
            JobNotFoundError: The job was cleaned up.
        """
        return self._opened(lambda: self._attempt.open_absolute(path))

    def open_absolute_blocking(self, path: str | os.PathLike[str] | StorePath) -> TaskFile:
        """The same as `open_absolute`: a file object for pyarrow, pandas and the like, on every store."""
        return self.open_absolute(path)

    def _opened(self, claim: Callable[[], task_files.TaskFile]) -> TaskFile:
        self._check_process("open")

        async def make() -> TaskFile:
            # On the loop, where the attempt's commit runs: a name claimed there is in it, or refused.
            with self._claiming:
                file = claim()
            try:
                return TaskFile(await file, asyncio.get_running_loop())
            except BaseException as error:
                await file._abort_after(error)
                raise

        return wait_for(make, "open", undo=lambda opened, interrupt: opened._file._abort_after(interrupt))

    def open_blocking(self, name: str) -> TaskFile:
        """The same as `open`: a file object for pyarrow, pandas and the like, on every store."""
        return self.open(name)

    def work_path(self, name: str = "") -> str:
        """A path of this machine that any program can write to; what is found there at task commit is committed.

        Its directories are made at once (a system call or two). Costs a scan of the task attempt directory at commit.

        Args:
            name: Where the file goes, relative to the destination; empty for the directory itself.

        Raises:
            UnsupportedError: The store's files have no such paths.
            InvalidPathError, TaskError: As `open`.
        """
        self._check_process("work_path")
        with self._claiming:
            return self._attempt.work_path(name)

    def count(self, name: str, n: int = 1) -> None:
        """Adds to a statistic of this attempt, such as rows written; that of a winner becomes part of the job's.

        Raises:
            TaskError: The attempt is over.
        """
        self._check_process("count")
        with self._claiming:
            self._attempt.count(name, n)

    @property
    def task_commit(self) -> TaskCommit:
        """The message that names this attempt as its task's winner; there once it committed.

        Raises:
            TaskError: It did not commit.
        """
        return self._attempt.task_commit

    def commit(self) -> TaskCommit:
        """Makes what was written the task's output. A second call returns the same message.

        Raises:
            TaskError: A file is still open, or the attempt was aborted.
            JobNotFoundError: The job was cleaned up.
            JobDecidedError: The job is decided: nothing of this attempt can become part of it.
        """
        return self._wait(self._attempt.commit, "task.commit")

    def abort(self) -> None:
        """Removes what this run wrote. Does nothing for an attempt that committed or was aborted.

        Raises:
            CommitterError: Something could not be removed; it stays under the job's directory, never visible.
        """
        self._wait(self._attempt.abort, "task.abort")

    def check_job(self) -> None:
        """Looks whether the job still stands undecided: one call.

        Raises:
            JobNotFoundError, JobDecidedError: It does not; stop writing.
        """
        self._wait(self._attempt.check_job, "check_job")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_inherited or (error is not None and is_ending()):
            return
        try:
            self._wait(lambda: self._attempt.__aexit__(kind, error, trace), "open_task")
        finally:
            tell_blocking_caller(error)

    async def _undo(self, interrupt: BaseException) -> None:
        await self._attempt.__aexit__(type(interrupt), interrupt, interrupt.__traceback__)

    async def _free(self) -> None:
        # Not by leaving: at interpreter exit nothing decides for the user.
        if self._attempt._owns_store:
            await self._attempt._context.store.close()

    def _wait(self, function: Callable[[], Awaitable[T]], operation: str) -> T:
        self._check_process(operation)
        return wait_for(function, operation)

    def _told_as(self) -> str:
        return f"task {self.task} attempt {self.attempt}"


def open_task(
    spec: JobSpec,
    *,
    task: int,
    attempt: int = 0,
    storage_options: Mapping[str, object] | None = None,
) -> TaskAttempt:
    """Opens a task attempt of a job that another process set up.

    ``with sync.open_task(spec, task=3, attempt=1) as task: ...`` commits it on a clean exit and aborts it on an
    exception; afterwards ``task.task_commit`` is the message for the driver. Without ``with``, call `commit` or
    `abort`.

    Args:
        spec: The job, from ``job.spec``.
        task: The task's number, from 0.
        attempt: The attempt's number, from 0.
        storage_options: How to reach the store, resolved in this process.

    Raises:
        JobNotFoundError: The job was never set up, or was cleaned up.
        JobDecidedError: The job is decided.
    """
    opening = task_opening.open_task(spec, task=task, attempt=attempt, storage_options=storage_options)

    async def make() -> TaskAttempt:
        return TaskAttempt(await opening)

    try:
        return wait_for(make, "open_task", undo=TaskAttempt._undo)
    finally:
        opening.drop()
