"""Completion and abort of uploads and block lists, also after lost responses."""

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
    """Completes an upload and returns the file's identity; if the outcome is unclear, stamp and length tell it.

    It is unclear after a lost response, if the upload does not exist any more (this request or an earlier one may
    have completed it), and if an exclusive completion meets a file (it may be the caller's own). After a lost
    response the request is repeated only if the file does not exist and the upload still pends: whichever request
    arrives first makes the same file, and the other finds no upload. Any other refusal of the repetition says
    nothing about the first request, so it looks then, too. Another engine's upload has no stamp: the identity is
    compared, if known.

    One call; two or three with a look; as many for each further try, of five.

    Raises:
        StoreOutcomeUnknownError: A response was lost and the file does not exist: it may appear yet, or was replaced
            or deleted.
        StoreUploadNotFoundError: Upload and file do not exist: it was aborted, or completed before and its file
            replaced or deleted.
        StoreExistsError: `exclusive` and another file exists.
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
            # After a lost response, no other refusal of this request tells the outcome of that one.
            if lost is None and not tells:
                raise error
            pends = False
            try:
                found = await status_or_none(store, path)
                if not (tells or _is_meant(found, stamp, size, identity)):
                    pends = await is_pending(store, path, upload_id)
                    # It may have been completed between the two looks.
                    found = found if pends else await status_or_none(store, path)
            except CommitterError as hidden:
                raise unseen(error, hidden, operation="complete_upload", path=path) from error
            if found is not None and _is_meant(found, stamp, size, identity):
                return found.identity
            tries -= 1
            if not (pends and tries):
                raise error if isinstance(error, StoreExistsError) else lost or error
            await current_runtime().sleep(_WAIT_S)
    finally:
        # As in `retry`: breaks the cycle of an error and this frame.
        error = lost = None


async def is_pending(store: Store, path: StorePath, upload_id: str) -> bool:
    """Returns whether an upload was neither completed nor aborted. One call."""
    uploads = UPLOADS.required(store, "list_parts", path)
    try:
        async for _part in uploads.list_parts(path, upload_id):
            break
    except StoreUploadNotFoundError:
        return False
    return True


async def end_upload(store: Store, path: StorePath, upload_id: str) -> bool:
    """Aborts an upload until gone, and returns True if it existed: parts under way can outlive the first abort.

    Two calls, and two for each further try, of five. Raises `StoreConflictError` if parts keep arriving, because its
    writer is still at work.
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
    """Commits a list of blocks and returns the file's identity; if the outcome is unclear, stamp and length tell it.

    It is unclear after a lost response, if a block does not exist (this request or an earlier one may have used it
    up), and if another file exists (it may be the caller's own). If no file is found after a lost response, the list
    is sent again on the same condition (`exclusive` or `identity`; one is required): whichever request arrives first
    makes the same file, and the other finds no blocks, or the file.

    One call; two with a look; as many for each further try, of five.

    Raises:
        StoreOutcomeUnknownError: A response was lost and the file does not exist: it may appear yet, or was replaced
            or deleted.
        StorePartsError: A block and the file do not exist: the blocks were dropped, or used up before this call.
        StoreExistsError: `exclusive` and another file exists.
        StorePreconditionError: No file of that identity exists.
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
                raise unseen(error, hidden, operation="put_block_list", path=path) from error
            if found is not None and not found.is_directory and (found.stamp, found.size) == (stamp, size):
                return found.identity
            tries -= 1
            if tells or not tries:
                raise error if lost is None or isinstance(error, StoreExistsError) else lost
            await current_runtime().sleep(_WAIT_S)
    finally:
        # As in `retry`: breaks the cycle of an error and this frame.
        error = lost = None


async def blocks_wait(store: Store, path: StorePath, block_ids: Collection[str]) -> bool:
    """Returns whether all these blocks wait under a name. One call; none without blocks."""
    if not block_ids:
        return True
    waiting = await BLOCK_LISTS.required(store, "list_uncommitted_blocks", path).list_uncommitted_blocks(path)
    return {block.block_id for block in waiting}.issuperset(block_ids)
