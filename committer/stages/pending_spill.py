"""Which of more uploads than fit in memory are named by lists of which there may be as many."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeAlias

from committer.flow.matches import Asked, Matches
from committer.flow.spill import SpillFile
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stores.uploads import PendingUpload

# So many are kept in memory while lists are read: all that is pending, but beside another job of many files.
_FEW: Final = 50_000
_LISTED_AT_ONCE: Final = 1000

UploadsIn: TypeAlias = Callable[[StorePath], AsyncIterator[tuple[StorePath, str]]]


async def with_listed(
    pending: SpillFile[PendingUpload],
    lists: Sequence[StorePath],
    uploads_in: UploadsIn,
    *,
    workers: int,
    few: int = _FEW,
) -> AsyncGenerator[tuple[PendingUpload, bool]]:
    """Tells of each upload whether one of the lists names it, in order.

    Args:
        pending: The uploads.
        lists: Each is read once; none where nothing is pending.
        uploads_in: Reads one: paths and ids.
        workers: Lists that are read at a time.
        few: How many uploads are compared in memory.

    Raises:
        CommitterError: The disk did not take, or give, what is more than that.
    """
    if not pending.count or not lists:
        async for upload in pending.read():
            yield upload, False
        return
    if pending.count <= few:
        unseen = {_text(upload.path, upload.upload_id) async for upload in pending.read()}
        listed: set[str] = set()

        async def find(run: StorePath) -> None:
            async for path, upload_id in uploads_in(run):
                if (text := _text(path, upload_id)) in unseen:
                    listed.add(text)

        await run_workers(lists, find, workers=workers, operation="abort_uploads")
        async for upload in pending.read():
            yield upload, _text(upload.path, upload.upload_id) in listed
        return
    async with Matches[bool](bool) as matches:

        async def note(run: StorePath) -> None:
            some: list[str] = []
            async for path, upload_id in uploads_in(run):
                some.append(_text(path, upload_id))
                if len(some) == _LISTED_AT_ONCE:
                    await matches.note(some, [True] * len(some))
                    some = []
            await matches.note(some, [True] * len(some))

        await run_workers(lists, note, workers=workers, operation="abort_uploads")
        number = 0
        async for upload in pending.read():
            await matches.ask([Asked(number, _text(upload.path, upload.upload_id), "-")])
            number += 1
        async with aclosing(matches.answers()) as answers:
            following = await anext(answers, None)
            number = 0
            async for upload in pending.read():
                named = following is not None and following[0] == number
                if named:
                    following = await anext(answers, None)
                yield upload, named
                number += 1


def _text(path: StorePath, upload_id: str) -> str:
    return f"{path}\n{upload_id}"
