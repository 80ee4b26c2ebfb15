"""Completes or aborts uploads, and commits blocks, also where responses are lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from committer.errors import (
    CommitterError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePreconditionError,
    StoreUploadNotFoundError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import status_or_none, unseen
from committer.stores.uploads import BLOCK_LISTS, UPLOADS, UploadPart

_TRIES: Final = 5
_WAIT_S: Final = 0.1


async def finish_upload(
    store: Store,
    path: StorePath,
    upload_id: str,
    parts: Sequence[UploadPart],
    *,
    stamp: str,
    size: int,
    identity: str | None = None,
    exclusive: bool = False,
) -> str | None:
    """Completes an upload and, where the answer does not say what happened, looks: stamp and length tell.

    That is so when the answer was lost, when there is no such upload any more (it may have been completed by this very
    request, or by an earlier one), and when, of an exclusive completion, something stands there: it may be the caller's
    own file. After a lost answer it is sent again only once a look has shown that the file is not there and the upload
    still pends: whichever of the two requests arrives first makes the same file, and the other finds no upload. What
    else that one is refused for says nothing of the first, so it is looked at likewise.

    One call; two or three when it has to look; and as many for each further try, of five.

    Args:
        store: Where; it must have `Capabilities.multipart`.
        path: The path of the upload.
        upload_id: The upload.
        parts: As for `SupportsUploads.complete_upload`.
        stamp: What the upload was created with; empty where another engine created it, then its identity tells.
        size: The length of the whole file.
        identity: What the file's identity will be, where there is no stamp and that is known.
        exclusive: As for `SupportsUploads.complete_upload`.

    Returns:
        The identity of the file that stands there then.

    Raises:
        StoreOutcomeUnknownError: Answers kept being lost, or the upload is gone after one was, and the file is not
            there: it may appear yet, or was replaced or deleted.
        StoreUploadNotFoundError: The upload is gone and the file is not there: it was aborted, or completed before this
            call and replaced or deleted since.
        StoreExistsError: `exclusive` and another file is there.
        UnsupportedError: The store has no uploads.
    """
    uploads = UPLOADS.required(store, "complete_upload", path)
    lost: StoreError | None = None
    error: CommitterError | None = None
    tries = _TRIES
    try:
        while True:
            try:
                return await uploads.complete_upload(path, upload_id, parts, exclusive=exclusive)
            except CommitterError as caught:
                error = caught
            if isinstance(error, StoreOutcomeUnknownError):
                lost = lost or error
            tells = isinstance(error, StoreUploadNotFoundError | StoreExistsError)
            # Once an answer was lost no other refusal, of this request, says what became of that one.
            if lost is None and not tells:
                raise error
            pends = False
            try:
                found = await status_or_none(store, path)
                if not (tells or _is_meant(found, stamp, size, identity)):
                    pends = await is_pending(store, path, upload_id)
                    # It may have become the file between the two looks.
                    found = found if pends else await status_or_none(store, path)
            except CommitterError as hidden:
                # What cannot be looked at is not known, whatever the answer was.
                raise unseen(error, hidden, operation="complete_upload", path=path) from error
            if found is not None and _is_meant(found, stamp, size, identity):
                return found.identity
            tries -= 1
            if not (pends and tries):
                raise error if isinstance(error, StoreExistsError) else lost or error
            await current_runtime().sleep(_WAIT_S)
    finally:
        # See `retry`: an error that its own frame has waits for the cycle collector, one for each file.
        error = lost = None


async def is_pending(store: Store, path: StorePath, upload_id: str) -> bool:
    """Whether an upload was neither completed nor aborted. One call.


    Raises:
        UnsupportedError: The store has no uploads.
    """
    uploads = UPLOADS.required(store, "list_parts", path)
    try:
        async for _part in uploads.list_parts(path, upload_id):
            break
    except StoreUploadNotFoundError:
        return False
    return True


async def end_upload(store: Store, path: StorePath, upload_id: str) -> bool:
    """Aborts an upload until it is gone: parts that were under way can outlive the first time.

    Two calls, and two for each further try, of five.

    Returns:
        Whether it was there: False when it was completed, or aborted before.

    Raises:
        StoreConflictError: Parts keep arriving: its writer is still at work.
        UnsupportedError: The store has no uploads.
    """
    uploads = UPLOADS.required(store, "abort_upload", path)
    there = await uploads.abort_upload(path, upload_id)
    for tries_left in reversed(range(_TRIES)):
        if not await is_pending(store, path, upload_id):
            return there
        if tries_left:
            await current_runtime().sleep(_WAIT_S)
            await uploads.abort_upload(path, upload_id)
    raise StoreConflictError("parts keep arriving: its writer is still at work", operation="abort_upload", path=path)


def _is_meant(found: FileStatus | None, stamp: str, size: int, identity: str | None) -> bool:
    if found is None or found.size != size:
        return False
    return found.stamp == stamp if stamp else identity is not None and found.identity == identity


async def finish_block_list(
    store: Store,
    path: StorePath,
    block_ids: Sequence[str],
    *,
    stamp: str,
    size: int,
    exclusive: bool = False,
    identity: str | None = None,
) -> str | None:
    """Puts a list of blocks and, where the answer does not say what happened, looks: stamp and length tell.

    That is so when the answer was lost, when a block is not there (this very request, or an earlier one, may have used
    them up), and when another file is there: it may be the caller's own. After a lost answer, and a look that did not
    find the file, the list is sent again on the same condition: whichever request arrives first makes the same file,
    and the other finds no blocks, or the file.

    One call; two when it has to look; and as many for each further try, of five.

    Args:
        store: Where; it must have `Capabilities.block_lists`.
        path: Where the file stands then.
        block_ids: Its blocks.
        stamp: What it is stamped with.
        size: The length of the whole file.
        exclusive: As for `SupportsBlockLists.put_block_list`; this or `identity` must be given.
        identity: Likewise.

    Returns:
        The identity of the file that stands there then.

    Raises:
        StoreOutcomeUnknownError: Answers kept being lost, or blocks are not there after one was, and the file is not
            there: it may appear yet, or was replaced or deleted.
        StorePartsError: A block is not there, and the file is not: they were dropped, or used up before this call.
        StoreExistsError: `exclusive` and another file is there.
        StorePreconditionError: Another file than the one of that identity is there, or none.
        UnsupportedError: The store has no block lists.
    """
    blocks = BLOCK_LISTS.required(store, "put_block_list", path)
    lost: StoreOutcomeUnknownError | None = None
    error: CommitterError | None = None
    tries = _TRIES
    try:
        while True:
            try:
                return await blocks.put_block_list(path, block_ids, stamp=stamp, exclusive=exclusive, identity=identity)
            except CommitterError as caught:
                error = caught
            if isinstance(error, StoreOutcomeUnknownError):
                lost = lost or error
            tells = isinstance(error, StorePartsError | StoreExistsError | StorePreconditionError)
            if lost is None and not tells:
                raise error
            try:
                found = await status_or_none(store, path)
            except CommitterError as hidden:
                # What cannot be looked at is not known, whatever the answer was.
                raise unseen(error, hidden, operation="put_block_list", path=path) from error
            if found is not None and not found.is_directory and (found.stamp, found.size) == (stamp, size):
                return found.identity
            tries -= 1
            if tells or not tries:
                raise error if lost is None or isinstance(error, StoreExistsError) else lost
            await current_runtime().sleep(_WAIT_S)
    finally:
        # See `retry`: an error that its own frame has waits for the cycle collector, one for each file.
        error = lost = None


async def blocks_wait(store: Store, path: StorePath, block_ids: Collection[str]) -> bool:
    """Whether all these blocks wait under a name: one call, none for an empty file's.

    Raises:
        UnsupportedError: The store has no block lists.
    """
    if not block_ids:
        return True
    waiting = await BLOCK_LISTS.required(store, "list_uncommitted_blocks", path).list_uncommitted_blocks(path)
    return {block.block_id for block in waiting}.issuperset(block_ids)
