"""What every way of removing what a job left has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias, TypeVar

from committer.errors import StoreError
from committer.flow.together import together
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.base import StageContext
from committer.stages.job_stands import is_of_other_setup, is_outcome_of_other_setup, set_up_anew
from committer.stages.other_setup import is_anew
from committer.stores.base import FileStatus
from committer.stores.helpers import children_of

TRIES: Final = 5
OPERATION: Final = "cleanup"

T = TypeVar("T")

Found: TypeAlias = dict[StorePath, list[FileStatus]]
"""What stands in some directories."""


class Removal(ABC):
    """One process's removal of what a job left: it takes things out of the job's directory, and deletes them.

    The process may be stopped between any two calls, while another one does the rest and the id is set up anew. So the
    calls come in this order, and each says what holds when the process goes on from there:

    ==  ===================  =========================================================================================
    1   `look`               Nothing was changed. What was seen may be another job's by now: `begin` finds that out.
    2   `begin`              The last look whose setup record stands. From here on no call reaches what a new job
                             makes, as far as the store can see to it: how is what the subclasses differ in.
    3   `take_all` of        Before the setup record, without which no process knows any more what is the job's in
        `outside`            directories that jobs share.
    4   `take_all` of        Decision and outcome still say how the job ended.
        the children, but
        for the fate
    5   `empty`              The directories that were taken are deleted: they are most of the work, and as long as one
                             stands the outcome stands.
    6   `take_decision`      After 5. At once with 5 where an outcome stands, which says then how the job ended.
    7   `take` the outcome   The last thing of the job. One that is kept stays.
    8   `end`                Nothing of the job is left, and nothing of this process.
    ==  ===================  =========================================================================================

    A process that takes a few records only begins, takes and ends (`committer.stages.removal.take_out`).

    Args:
        context: The job, as this process knows it.

    Attributes:
        found: What stands in the places that a cleanup empties; empty until `look`.
        outside: What the job has outside its own directory.
        decision_taken: Whether `take_decision` took the decision.
    """

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self.found: Found = {}
        self.outside: list[FileStatus] = []
        self.decision_taken: bool = False

    @property
    def children(self) -> list[FileStatus]:
        """What was seen in the job's directory."""
        return self.found.get(self.context.layout.job_directory, [])

    @property
    def run_lists(self) -> list[StorePath]:
        """Where runs of task attempts listed their uploads, as far as it was listed by name."""
        return []

    async def look(self) -> None:
        """Looks what stands in the places that a cleanup empties.

        At most 3 listings at once; one more where a rollback began.
        """
        context, layout = self.context, self.context.layout
        in_parallel = self.context.config.cleanup_parallel_delete and not self.base_first
        found: Found = {}

        async def look(place: StorePath) -> None:
            found[place] = await children_of(context.store, place)

        places = [layout.job_directory, layout.drivers, *([layout.tasks] if in_parallel else [])]
        await together(self.look_outside(), *map(look, places))
        if in_parallel:
            standing = {child.path for child in found[layout.drivers]}
            more = ({layout.sealed, layout.tasks_fenced} & standing) - found.keys()
            await together(*map(look, sorted(more)))
        self.found.clear()
        self.found.update(found)

    @property
    def base_first(self) -> bool:
        """Whether a directory is deleted with all that is below in one call, if that works.

        Also where whole directories were published: a task attempt's holds next to nothing then.
        """
        context = self.context
        return context.config.cleanup_base_first or context.store.capabilities.deletes_trees or context.layout.is_sealed

    async def look_outside(self) -> None:
        """Looks what the job has outside its own directory: no call for most committers."""
        self.outside = await self.context.forms.outside(self.context)

    async def begin(self) -> None:
        """Makes sure that what stands is of the job, or of none.

        Raises:
            JobNotFoundError: Its id was set up anew; nothing was changed.
        """
        if not self.found:
            await self.look()
        await self.refuse_another(self.children)

    async def refuse_another(self, children: Iterable[FileStatus]) -> None:
        """Refuses to go on where what was listed is another job's, as its setup record says, or the outcome that such
        a job keeps without one; at most one call.

        Raises:
            JobNotFoundError: It is.
        """
        layout, store = self.context.layout, self.context.store
        names = {child.path.name: child for child in children}
        # To a process that met the job without a setup record every such record is another job's.
        unnamed = not layout.setup_name and layout.setup.name in names and await is_of_other_setup(store, layout)
        kept = layout.setup.name not in names and layout.outcome.name in names
        if unnamed or await is_anew(self.context, names) or (kept and await is_outcome_of_other_setup(store, layout)):
            raise set_up_anew(layout, OPERATION)

    @abstractmethod
    async def take(self, child: FileStatus) -> None:
        """Takes one thing out of the job's directory, whole. One that is gone is no error.

        Raises:
            JobNotFoundError: The id was set up anew meanwhile; the new job's was not touched.
        """

    async def take_decision(self) -> None:
        """Takes the decision; see `take`. Not a second time."""
        if not self.decision_taken:
            await self.take(FileStatus(self.context.layout.decision, False, 0))
            self.decision_taken = True

    @abstractmethod
    async def empty(self) -> list[StoreError]:
        """Deletes what was taken, as far as that is much. What failed is returned."""

    @abstractmethod
    async def end(self) -> None:
        """Deletes what is left of what was taken."""

    async def take_all(self, children: Iterable[FileStatus]) -> list[StoreError]:
        """Takes many; one failure does not stop the others. What failed is returned."""
        return await self.in_parallel(self.take, children)

    async def in_parallel(self, remove: Callable[[T], Awaitable[object]], things: Iterable[T]) -> list[StoreError]:
        """Removes many things; one failure does not stop the others. What failed is returned."""
        failures: list[StoreError] = []

        async def one(thing: T) -> None:
            try:
                await remove(thing)
            except StoreError as error:
                failures.append(error)

        await run_workers(things, one, workers=self.context.config.io_concurrency, operation=OPERATION)
        return failures


async def delete(context: StageContext, child: FileStatus) -> None:
    """Deletes a file or a directory by its name, where nothing else proves whose it is: 2 calls.

    Raises:
        JobNotFoundError: The id was set up anew; nothing was changed. A process that stops after this look, and before
            the delete, is not kept from deleting what is the new job's.
    """
    if await is_of_other_setup(context.store, context.layout):
        raise set_up_anew(context.layout, OPERATION)
    if child.is_directory:
        await context.store.delete_directory(child.path, recursive=True)
    else:
        await context.store.delete_file(child.path)
