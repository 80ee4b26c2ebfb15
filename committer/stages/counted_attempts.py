"""Which attempts' directories hold just what their records say, so that no file of theirs needs a look of its own."""

from __future__ import annotations

from committer.errors import StoreError
from committer.flow.workers import run_workers
from committer.stages.base import StageContext
from committer.stages.planned_file import PlannedFile
from committer.stores.tree_counts import SupportsTreeCounts, TreeCounts

# With fewer files a look at each costs no more than the count.
_WORTH_A_COUNT = 2


async def counted_files(
    context: StageContext, store: SupportsTreeCounts, files: list[PlannedFile], *, operation: str
) -> tuple[list[PlannedFile], list[PlannedFile]]:
    """Parts files into those that are known to be files, and those that are to be looked at.

    A directory where a record names a file makes one directory more, and one file less. An attempt's directory that
    holds more or less than its record says, or cannot be counted, proves nothing. One call an attempt. What makes up
    for such a directory in files, directories and bytes at once is not told: in a directory whose name holds a nonce
    of the attempt, nothing but the attempt writes.

    Args:
        context: The job.
        store: The same store, which counts.
        files: All files of each attempt; those of an attempt of which some are missing are looked at.
        operation: For errors.
    """
    attempts: dict[str, list[PlannedFile]] = {}
    for file in files:
        attempts.setdefault(file.source.partition("/")[0], []).append(file)
    proved: set[str] = set()

    async def count(attempt: str) -> None:
        try:
            found = await store.count_tree(context.layout.tasks / attempt)
        except StoreError:
            # The looks that follow tell what is wrong.
            return
        if found == _recorded(attempts[attempt]):
            proved.add(attempt)

    worth = [attempt for attempt, some in attempts.items() if len(some) >= _WORTH_A_COUNT]
    await run_workers(worth, count, workers=context.config.io_concurrency, operation=operation)
    known = [file for attempt, some in attempts.items() if attempt in proved for file in some]
    rest = [file for attempt, some in attempts.items() if attempt not in proved for file in some]
    return known, rest


def _recorded(files: list[PlannedFile]) -> TreeCounts:
    """What holds these files, and nothing else."""
    directories = set[str]()
    for directory in {file.source.rpartition("/")[0] for file in files}:
        above = directory
        while above and above not in directories:
            directories.add(above)
            above = above.rpartition("/")[0]
    return TreeCounts(len(files), len(directories), sum([file.size for file in files]))
