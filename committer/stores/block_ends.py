"""How blocks become a file, also where answers are lost: by looking."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from committer.errors import (
    CommitterError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePartsError,
    StorePreconditionError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import Store
from committer.stores.helpers import status_or_none, unseen
from committer.stores.uploads import BLOCK_LISTS

_TRIES: Final = 5
_WAIT_S: Final = 0.1


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
