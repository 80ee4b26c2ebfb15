"""Batches of renames that a few threads share, so that no coroutine waits for each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from committer.errors import CommitterError, StoreError, StoreIsADirectoryError, StorePreconditionError
from committer.flow.shielded import UNDO_BOUND_S, run_shielded
from committer.paths import StorePath
from committer.stores.hdfs.connection import DATA_S, Connection, unanswered
from committer.stores.hdfs.errors import error_of

if TYPE_CHECKING:
    from hdfs_native import Client, FileStatus

LANES: Final = 32
"""Threads per batch. A publish runs four batches: two wait, so that no thread has to be woken."""


def identity_of(found: FileStatus) -> str:
    """Returns the identity of a file, which a rename keeps.

    Never the file id, if a release of the client shows it: records of older jobs and other releases have this form.
    """
    return f"m{found.modification_time}"


class Renames:
    """Batch of file renames that replace nothing, while it runs.

    The NameNode renames a directory as it does a file, so each source is looked at first, unless `looks` is False and
    `seen` is None. `seen` gives the identity and length that each source must have.
    """

    def __init__(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        seen: Sequence[tuple[str | None, int]] | None,
        *,
        looks: bool = True,
    ) -> None:
        self._renames = renames
        self._seen = seen
        self._looks = looks or seen is not None
        self._left = deque(range(len(renames)))
        self._ended: set[int] = set()
        self._errors: dict[int, StoreError] = {}

    @property
    def above(self) -> StorePath:
        """The directory of the first destination."""
        return self._renames[0][1].parent

    @property
    def lanes(self) -> int:
        """The number of threads to use."""
        return min(LANES, len(self._renames))

    def run(self, client: Client) -> None:
        """Renames files until none is left; called in each thread."""
        rename, renames, left, ended = client.inner.rename, self._renames, self._left, self._ended
        looks = self._looks
        while left:
            try:
                index = left.popleft()
            except IndexError:
                return
            source, destination = renames[index]
            try:
                if looks:
                    self._look(client, index, source)
                rename(source.path, destination.path, False)
            except BaseException as error:
                self._errors[index] = _told(error, source, destination)
            ended.add(index)

    def _look(self, client: Client, index: int, source: StorePath) -> None:
        found = client.inner.get_file_info(source.path)
        if found.isdir:
            raise StoreIsADirectoryError("a directory is there", operation="rename_file", path=source)
        if self._seen is not None and self._seen[index] != (identity_of(found), found.length):
            raise StorePreconditionError("another file is there", operation="rename_file", path=source)

    def stop(self) -> dict[int, StoreError]:
        """Starts no further rename; returns errors by index, also of renames that were not begun or did not end."""
        never = []
        while self._left:
            with suppress(IndexError):
                never.append(self._left.pop())
        unknown = set(range(len(self._renames))).difference(never, self._ended.copy())
        errors = dict.fromkeys(never, self._unanswered(may_be_done=False))
        errors |= dict.fromkeys(unknown, self._unanswered(may_be_done=True))
        return errors | self._errors

    def _unanswered(self, *, may_be_done: bool) -> StoreError:
        return unanswered("rename_file", self.above, DATA_S, may_be_done=may_be_done)


async def rename_together(connection: Connection, batch: Renames) -> dict[int, StoreError]:
    """Runs the renames of a batch; returns errors by index. A cancelled caller waits for renames that were begun."""
    # A task of its own, so that no further rename begins once the caller is cancelled.
    running = asyncio.create_task(
        connection.call(batch.run, "rename_file", batch.above, bound_s=DATA_S, lanes=batch.lanes)
    )
    try:
        await asyncio.wait([running])
    except asyncio.CancelledError:
        batch.stop()
        running.cancel()
        # The call bounds its own wait.
        await run_shielded(lambda: asyncio.wait([running]), bound_s=2 * UNDO_BOUND_S)
        raise
    errors = batch.stop()
    error = running.exception()
    # `stop` reports the renames of an abandoned call.
    if error is not None and not isinstance(error, StoreError):
        raise error
    return errors


def _told(error: BaseException, source: StorePath, destination: StorePath) -> StoreError:
    if not isinstance(error, CommitterError):
        error = error_of(error, "rename_file", destination, source=source)
    if not isinstance(error, StoreError):
        raise error
    return error
