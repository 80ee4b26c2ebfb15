"""The names that a task attempt's files take: each once, none the directory of another, all that the store can hold."""

from __future__ import annotations

import os
from collections.abc import Callable

from committer.errors import InvalidPathError, TaskError
from committer.file_names import check_absolute_name, check_file_name, unique_name
from committer.layout import TEMPORARY
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.names import NameFolding, ancestors, is_absolute, name_problem


class TaskNames:
    """What one task attempt took so far. It refuses what preflight would refuse when the job commits.

    Args:
        context: The job.
        kept_at: Where the file of a staged name is kept until its job commits; None where its name matters nowhere.
    """

    def __init__(self, context: StageContext, kept_at: Callable[[str], StorePath | None]) -> None:
        self._context = context
        self._kept_at = kept_at
        self._folding = NameFolding(context.store.capabilities)
        self._taken: dict[str, str] = {}
        self._parents: dict[str, str] = {}

    def take(self, name: str) -> str:
        """Takes a name relative to the destination, and returns it as it is published.

        Raises:
            InvalidPathError: No destination could hold it, or it is reserved.
            TaskError: It was taken before, or it is a directory of another file.
        """
        return self._take(check_file_name(name))[0]

    def take_absolute(self, path: str | os.PathLike[str] | StorePath) -> tuple[str, str]:
        """Takes an absolute path below one of the job's roots; returns it, and the file's name within the attempt.

        Raises:
            InvalidPathError: It is relative, of another store, below none of the roots, or reserved.
            TaskError: It was taken before, or it is a directory of another file.
        """
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
        # Of a file that goes outside the destination a name that no relative one can have.
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
        """Refuses a name that preflight would refuse, or that the file cannot have until then.

        Raises:
            InvalidPathError: The store cannot hold it.
        """
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
