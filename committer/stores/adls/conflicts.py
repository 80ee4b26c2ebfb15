"""What stood in the way of a write: looked up, since the service's codes leave it open."""

from __future__ import annotations

from committer.errors import (
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotFoundError,
)
from committer.paths import StorePath
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import status_or_none


async def explain_conflict(
    store: Store, operation: str, path: StorePath, *, exclusive: bool, found: FileStatus | None = None
) -> None:
    """Looks what stood in the way of a write: the service has one code for several things, and several for one.

    Raises:
        StoreExistsError: Something is there, and it was to be absent.
        StoreIsADirectoryError: A directory is there.
        StoreNotADirectoryError: A file is at one of its parents.
    """
    found = found or await status_or_none(store, path)
    if found is not None:
        if exclusive:
            raise StoreExistsError("something stands there", operation=operation, path=path)
        if found.is_directory:
            raise StoreIsADirectoryError("a directory is there", operation=operation, path=path)
        return
    parent = path.parent
    while parent.path != "/":
        above = await status_or_none(store, parent)
        if above is not None:
            if not above.is_directory:
                raise StoreNotADirectoryError("a file stands at one of its parents", operation=operation, path=path)
            return
        parent = parent.parent


async def check_parent(store: Store, path: StorePath) -> None:
    """Looks whether a directory can be made below its parent, which the service would make up.

    Raises:
        StoreNotFoundError: The parent is missing.
        StoreNotADirectoryError: A file is at one of its parents.
    """
    parent = await status_or_none(store, path.parent)
    if parent is None:
        await explain_conflict(store, "make_directory", path.parent, exclusive=False)
        raise StoreNotFoundError("the parent is missing", operation="make_directory", path=path)
    if not parent.is_directory:
        raise StoreNotADirectoryError("its parent is a file", operation="make_directory", path=path)
