"""Class of a task attempt (one run of a task, which writes files and commits or aborts them), and its opening."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

import anyio

from committer.advice import say_what_next
from committer.api.task_files import IN_ANOTHER_PROCESS, BlockingTaskFile, TaskFile, check_awaited, opened_on_loop
from committer.committers.advising import advising, shown_options
from committer.committers.base import Committer
from committer.committers.context import open_context
from committer.committers.opened_store import closed_on_failure, fresh_statistics, is_owned
from committer.committers.registry import committer_for
from committer.errors import CommitterError, ConfigurationError, InvalidPathError, JobNotFoundError, TaskError
from committer.events import names
from committer.file_names import check_absolute_name, check_file_name, unique_name
from committer.flow.misuse import Calls, OneProcess, Opening, noted
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.layout import TEMPORARY, check_number
from committer.logs import audit, job_logger
from committer.paths import StorePath
from committer.readable import count
from committer.records.task_commit import TaskCommit
from committer.spec import JobSpec
from committer.stages.base import AttemptIdentity, StageContext, TaskOutput, WrittenFile, oldest_first
from committer.stages.names import NameFolding, ancestors, is_absolute, name_problem
from committer.stages.state.job_liveness import check_job_is_live
from committer.stages.task.abort_task import AbortRequest
from committer.stages.task.attempt_files import make_local_directories, why_attempt_is_gone
from committer.stores.base import FileStatus
from committer.stores.registry import find_store


class TaskNames:
    """The names that one task attempt has used. It refuses names that preflight would refuse.

    `kept_at` returns a staged name's path until the job commits; None if the name does not matter.
    """

    def __init__(self, context: StageContext, kept_at: Callable[[str], StorePath | None]) -> None:
        self._context = context
        self._kept_at = kept_at
        self._folding = NameFolding(context.store.capabilities)
        self._taken: dict[str, str] = {}
        self._parents: dict[str, str] = {}

    def take(self, name: str) -> str:
        """Reserves a name relative to the destination; returns its published form."""
        return self._take(check_file_name(name))[0]

    def take_absolute(self, path: str | os.PathLike[str] | StorePath) -> tuple[str, str]:
        """Reserves an absolute path below a root of the job; returns it, and the file's name within the attempt."""
        layout = self._context.layout
        try:
            if not isinstance(path, StorePath) and os.fspath(path).endswith("/"):
                raise InvalidPathError(
                    "a file's path ends in a slash", path=ascii(os.fspath(path)), next_step="give the name of a file"
                )
            return self._take(check_absolute_name(layout.absolute(path), layout.roots))
        except InvalidPathError as error:
            error.operation = "open_absolute"
            error.next_step = error.next_step or (
                f"the job may write below {', '.join(str(layout.target(root)) for root in sorted(layout.roots))}"
                if layout.roots
                else "open the job with config=CommitterConfig(absolute_roots=(...))"
            )
            raise

    def _take(self, destination: str) -> tuple[str, str]:
        if self._context.config.unique_names:
            layout, can = self._context.layout, self._context.store.capabilities
            destination = unique_name(destination, layout.name_token if can.deletes_by_name else layout.job_id)
        # A file outside the destination gets a name that no relative file can have.
        staged = f"{TEMPORARY}/absolute/{len(self._taken) + 1}" if is_absolute(destination) else destination
        self.check(destination, staged, "open")
        folded = self._folding.fold(destination)
        if folded in self._taken:
            raise TaskError(
                f"{destination} was opened before in this task attempt"
                + (f", as {self._taken[folded]}" if self._taken[folded] != destination else ""),
                operation="open",
                path=destination,
                next_step="give each file a name of its own",
            )
        parents = ancestors(folded)
        if folded in self._parents or any(parent in self._taken for parent in parents):
            raise TaskError(
                f"{destination} would be a file and a directory at once",
                operation="open",
                path=destination,
                next_step="give each file a name of its own",
            )
        self._taken[folded] = destination
        for parent in parents:
            self._parents.setdefault(parent, destination)
        return destination, staged

    def check(self, destination: str, staged: str, operation: str) -> None:
        """Refuses a name that preflight would refuse, or that the file cannot have until then."""
        can, layout = self._context.store.capabilities, self._context.layout
        above = "" if is_absolute(destination) else f"{layout.destination.path.rstrip('/')}/"
        problem = name_problem(destination, can, len(above.encode()))
        kept_at = self._kept_at(staged) if problem is None else None
        if kept_at is not None:
            problem = name_problem(kept_at.path, can, 0)
            problem = problem and f"until its job commits, {problem}"
        if problem is not None:
            raise InvalidPathError(
                f"{destination[:200]}: {problem}",
                operation=operation,
                path=destination[:200],
                next_step="give the file another name",
            )


_log = job_logger("committer.task")

_NEXT_ATTEMPT = "remove the cause; then run the task again, with another attempt number"


class TaskAttempt(OneProcess):
    """Run of a task attempt. Leaving its block commits it; leaving with an exception aborts it.

    It cannot be pickled or copied; in a forked child every method raises, and leaving the block does nothing.
    Another process opens a task attempt of its own: `open_task`.

    Attributes:
        task: The task's number.
        attempt: The attempt's number.
        nonce: Random part of every path of this run, so that two runs of one attempt never share a file.
        directory: The task attempt directory.
    """

    _refused = TaskError
    _instead = IN_ANOTHER_PROCESS

    needs_task_commit = True
    """MapReduce's question. Always: an attempt without output must still report that its task is done (G9)."""

    def __init__(
        self,
        context: StageContext,
        committer: Committer,
        identity: AttemptIdentity,
        directory: StorePath,
        *,
        owns_store: bool,
        committed: Callable[[TaskCommit], None] | None = None,
        left: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self.task: int = identity.task
        self.attempt: int = identity.attempt
        self.nonce: str = identity.nonce
        self.directory = directory
        self._context = context
        self._committer = committer
        self._identity = identity
        self._writing = committer.files_of(context, identity, directory)
        self._owns_store = owns_store
        self._committed = committed
        self._left = left
        self._names = TaskNames(context, self._writing.kept_at)
        self._files: dict[str, WrittenFile] = {}
        self._given_up: set[str] = set()
        self._failed: list[str] = []
        self._paths: set[str] = set()
        self._unfinished: set[str] = set()
        self._held: weakref.WeakSet[TaskFile] = weakref.WeakSet()
        self._scan = False
        self._calls = Calls()
        self._message: TaskCommit | None = None
        self._state = "open"
        self._may_have_committed = False
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        layout = self._context.layout
        return (
            f"<TaskAttempt task {self.task}, attempt {self.attempt} of job {layout.job_id} at {layout.destination}: "
            f"{self._state}, files written: {len(self._files):,}, still open: {len(self._unfinished):,}>"
        )

    # -- writing ------------------------------------------------------------------------------------------------

    def open(self, name: str) -> TaskFile:
        """Opens a file to write: ``async with task.open("a=1/part-0.csv") as f: await f.write(b"...")``.

        The name is relative to the destination. Costs one call, and one a directory that this attempt did not
        write to yet.

        Raises:
            InvalidPathError: No destination could hold the name, or it is reserved.
            TaskError: The attempt is over, or the name was opened before, or it is a directory of another file.
        """
        self._check_open("open")
        destination = self._names.take(name)
        return self._open(destination, destination, absolute="")

    def open_absolute(self, path: str | os.PathLike[str] | StorePath) -> TaskFile:
        """Opens a file to write at an absolute path outside the destination, in the same store.

        ``async with task.open_absolute("file:///warehouse/custom/part-0.parquet") as f: await
        f.write(b"...")``. The file is staged below the job's directory and published with the others, for
        Hive's custom partition locations (Spark's ``newTaskTempFileAbsPath``). Costs as `open`.

        Args:
            path: A URI or absolute path in the destination's store, below one of `CommitterConfig.absolute_roots`.

        Raises:
            InvalidPathError: It is relative, of another store, below none of the roots, or reserved.
            TaskError: The attempt is over, or the path was opened before, or it is a directory of another file.
        """
        self._check_open("open_absolute")
        destination, staged = self._names.take_absolute(path)
        return self._open(destination, staged, absolute=destination)

    def open_absolute_blocking(self, path: str | os.PathLike[str] | StorePath) -> BlockingTaskFile:
        """Opens the file of `open_absolute` for libraries that block, to be used as that of `open_blocking`."""
        return self._open_blocking(lambda: self.open_absolute(path))

    def _open(self, destination: str, staged: str, *, absolute: str) -> TaskFile:
        def finished(status: FileStatus | None, aborted: bool) -> None:
            self._unfinished.discard(destination)
            if status is None:
                self._given_up.add(staged)
                if not aborted:
                    self._failed.append(destination)
            else:
                self._files[staged] = self._writing.written(staged, status, absolute=absolute)

        self._unfinished.add(destination)
        open_writer = partial(self._writing.open, destination, staged)
        why_gone = partial(why_attempt_is_gone, self._context, self.directory)
        file = TaskFile(destination, open_writer, finished, why_gone, self._calls)
        self._held.add(file)
        return file

    def open_blocking(self, name: str) -> BlockingTaskFile:
        """Opens a file object for libraries that block (pyarrow, pandas), to be used in another thread.

        ``async with task.open_blocking("part-0.parquet") as f: await asyncio.to_thread(pq.write_table, table,
        f)``, or ``with task.open_blocking(...) as f`` in a function that runs in such a thread. At most a
        megabyte is held in memory, whatever the store.

        Raises:
            InvalidPathError, TaskError: As `open`.
        """
        return self._open_blocking(lambda: self.open(name))

    def _open_blocking(self, claim: Callable[[], TaskFile]) -> BlockingTaskFile:
        # Checked before the loop is asked: in a forked child the loop only seems to run.
        self._check_open("open_blocking")
        return opened_on_loop(self._loop, claim, self.directory)

    def work_path(self, name: str = "") -> str:
        """Returns a path of this machine for any program to write to; task commit takes the files found there.

        Its directories are created at once (a system call or two). The commit scans the task attempt directory,
        and refuses links, pipes and the like: only regular files can be committed.

        Close every file first, and wait for the programs that write them: the engine cannot see that a file is
        still being written, and would commit it short. With `open` and `open_blocking` a file that is not
        closed keeps the attempt from being committed.

        Args:
            name: The file's name, relative to the destination; empty for the directory itself. A name without a
                file is logged when the attempt commits.

        Raises:
            UnsupportedError: The store's files have no such paths.
            InvalidPathError, TaskError: As `open`.
        """
        self._check_open("work_path")
        base = self._writing.local_directory(name)
        destination = self._names.take(name) if name else ""
        self._scan = True
        if not name:
            return base
        self._paths.add(destination)
        return make_local_directories(self._context, base, destination)

    def _told_as(self) -> str:
        return f"task {self.task} attempt {self.attempt}"

    def _check_open(self, operation: str) -> None:
        self._check_process(operation)
        if self._state != "open":
            raise TaskError(
                f"task {self.task} attempt {self.attempt} is {self._state}",
                operation=operation,
                path=str(self.directory),
                next_step="open a new attempt",
            )

    def count(self, name: str, n: int = 1) -> None:
        """Adds to a statistic of this attempt, such as rows written; a winner's becomes part of the job's."""
        self._check_open("count")
        self._context.statistics.count(name, n)

    # -- ending -------------------------------------------------------------------------------------------------

    @property
    def task_commit(self) -> TaskCommit:
        """The message that names this attempt as its task's winner; a `TaskError` is raised before it committed."""
        if self._message is None:
            raise TaskError(
                f"task {self.task} attempt {self.attempt} did not commit, so it has no message",
                operation="task_commit",
                path=str(self.directory),
                next_step="read task.task_commit after the attempt's block, or after `await task.commit()`",
            )
        return self._message

    async def commit(self) -> TaskCommit:
        """Makes the written files the task's output. A second call returns the same message.

        Raises:
            TaskError: A file is open or could not be written, a call was never awaited, or the attempt is aborted.
            JobNotFoundError: The job was cleaned up.
            JobDecidedError: The job is decided: nothing of this attempt can become part of it.
        """
        self._check_process("commit_task")
        if self._message is not None:
            return self._message
        # Lets coroutines that create_task just scheduled start: a file that one opens then counts as open.
        await asyncio.sleep(0)
        if self._message is not None:
            return self._message
        self._check_open("commit_task")
        check_awaited(self._calls, self._told_as(), self.directory)
        if self._unfinished:
            raise TaskError(
                f"still open: {count(len(self._unfinished), 'file')}, the first: {min(self._unfinished)}",
                operation="commit_task",
                path=min(self._unfinished),
                next_step="close every file before the attempt is committed: write it in `async with task.open(name)` "
                "or `async with task.open_blocking(name)`, or call its close; with committer.sync in "
                "`with task.open(name)`",
            )
        if self._failed:
            raise TaskError(
                f"not written: {count(len(self._failed), 'file')}, the first: {self._failed[0]}; its block raised "
                "an exception, or a call of the file failed",
                operation="commit_task",
                path=self._failed[0],
                next_step="run the task again as a new attempt, and do not catch the exception; to commit an attempt "
                "without a file, call the file's abort() inside its block",
            )
        context, before = self._context, self._may_have_committed
        # No file can be opened any more: one that is not in the record would be lost without an error.
        self._state = "being committed"
        with audit(ji=context.layout.job_id, ta=self._attempt_id):
            try:
                output = await self._output()
                # Any failure except a definite refusal may leave a saved record.
                self._may_have_committed = True
                self._message = await self._committer.commit_task(context, output)
            except CommitterError as error:
                context.statistics.count(names.COMMITTER_TASKS_FAILED)
                # Nobody publishes any more where the job is gone, so that its remains can go.
                if error.outcome != "unknown" or isinstance(error, JobNotFoundError):
                    self._may_have_committed = before
                raise
            finally:
                self._state = "open"
            _log.debug(
                "task attempt %s is committed: %d files, %d bytes",
                self._attempt_id,
                self._message.files,
                self._message.size,
            )
        self._state = "committed"
        await self._leave()
        if self._committed is not None:
            self._committed(self._message)
        return self._message

    async def _output(self) -> TaskOutput:
        files, directories = dict(self._files), list[str]()
        if self._scan:
            found, directories = await self._writing.scan()
            for file in found:
                if file.name not in files and file.name not in self._given_up:
                    self._names.check(check_file_name(file.name), file.name, "commit_task")
                    files[file.name] = file
            self._warn_of_missing({*files, *directories})
        settled = await self._writing.settle(list(files.values()))
        return TaskOutput(
            identity=self._identity,
            directory=self.directory,
            files=oldest_first(settled, self._writing.uploads()),
            directories=directories,
            by_path=self._scan,
        )

    def _warn_of_missing(self, found: set[str]) -> None:
        """Logs names of `work_path` without a file: a program had no rows, or still runs."""
        missing = self._paths - found
        if missing:
            missing -= {parent for name in found for parent in ancestors(name)}
        if missing:
            _log.warning(
                "task attempt %s is committed without %s of work_path at which nothing was written, the first: %s",
                self._attempt_id,
                count(len(missing), "name"),
                min(missing),
            )

    @noted
    async def abort(self) -> None:
        """Removes the files of this run. Does nothing for an attempt that committed or was aborted.

        Raises:
            CommitterError: Something could not be removed; it stays under the job's directory, never visible.
        """
        self._check_process("abort_task")
        if self._state != "open":
            return
        self._state = "aborted"
        await self._writing.stop()
        if self._context.store.capabilities.local_paths:
            # The removal needs file descriptors, and the open files may hold all that the process is allowed.
            for file in tuple(self._held):
                with suppress(CommitterError):
                    await file._let_go()
        request = AbortRequest(
            self.task,
            self.attempt,
            self.nonce,
            may_have_record=self._may_have_committed,
            uploads=self._writing.uploads(),
        )
        try:
            await self._committer.abort_task(self._context, request)
        except BaseException:
            await self._leave()
            raise
        _log.debug(
            "task attempt %s is aborted",
            self._attempt_id,
            extra={"job": self._context.layout.job_id, "task": self._attempt_id},
        )
        await self._leave()

    async def _leave(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            left()
        owned, self._owns_store = self._owns_store, False
        with anyio.CancelScope(shield=True):
            try:
                await self._writing.close()
            finally:
                if owned:
                    await self._context.store.close()

    async def check_job(self) -> None:
        """Checks that the job still exists and is undecided: one call.

        Raises:
            JobNotFoundError, JobDecidedError: It does not, or is decided; stop writing.
        """
        self._check_process("check_job")
        context = self._context
        await check_job_is_live(context, operation="check_job")

    @property
    def _attempt_id(self) -> str:
        return self._context.layout.task_attempt_id(self.task, self.attempt)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_inherited:
            return
        try:
            if error is None:
                try:
                    if self._state == "open":
                        await self.commit()
                except BaseException as failure:
                    await self._abort_after(failure)
                    raise
            else:
                await self._abort_after(error)
        finally:
            await self._leave()

    async def _abort_after(self, error: BaseException) -> None:
        """Aborts because of `error`, which a failure to abort must not hide."""
        if isinstance(error, CommitterError):
            say_what_next(error, _NEXT_ATTEMPT)
        if self._may_have_committed:
            # Its record may have been saved, in place of another attempt's, and read by a job commit: all of it
            # stays.
            error.add_note(f"task {self.task} attempt {self.attempt} was not aborted: it may have committed")
            return
        try:
            await run_shielded(self.abort, bound_s=UNDO_BOUND_S)
        except CommitterError as failure:
            _log.warning("task %d attempt %d could not be aborted: %s", self.task, self.attempt, failure)
            error.add_note(f"the task attempt could not be aborted: {failure}")


def open_task(
    spec: JobSpec, *, task: int, attempt: int = 0, storage_options: Mapping[str, object] | None = None
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
        async with closed_on_failure(context.store):
            with advising(lambda: shown_options(context.layout.destination, storage_options)):
                return await make_attempt(context, task=task, attempt=attempt, owns_store=True)

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
