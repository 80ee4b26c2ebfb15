"""Base of stores of objects, which have no real directories.

Buckets hold such names; a `StorePath` holds none, and what reads a bucket as a tree opens something else under them, or
nothing. A listing shows each as no file and no directory, under its own name, so that who counts, replaces or compares
all that stands in a directory meets it.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from committer.errors import (
    CommitterError,
    ConfigurationError,
    StoreExistsError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    UnsupportedError,
)
from committer.file_names import working_directory_in
from committer.paths import StorePath
from committer.stores.abilities import BATCH_DELETE, FileStatus, Refusals
from committer.stores.base import Store
from committer.stores.helpers import status_or_none, unseen

_ODD: Final = ("", ".", "..")


def is_odd(segment: str) -> bool:
    """Whether no path can hold a segment."""
    return segment in _ODD


async def delete_odd(store: Store, directory: StorePath) -> None:
    """Deletes what lies directly in a directory under such segments, where directories are not real: 7 calls at most.

    No listing of a job's own directory shows it, and the directory stays for it.
    """
    places = [StorePath(directory.scheme, directory.authority, f"{directory.path}/{segment}") for segment in _ODD]
    for place in places:
        # An object may have the name, too. A service that refuses a name holds none (SeaweedFS: 400 for one that ends
        # in a segment of dots).
        with suppress(StoreNotADirectoryError, ConfigurationError):
            await store.delete_directory(place, recursive=True)
    able = BATCH_DELETE.of(store)
    if able is not None:
        # Never by a request whose URL names them: what is on the way may take the dots for steps up.
        await able.delete_files([place for place in places if not place.path.endswith("/")])


def odd_status(directory: StorePath, name: str, tool: str, scheme: str) -> FileStatus | None:
    """What a listing of `directory` says of names that no path can hold; None in a job's own directories.

    Those have readers of their own, who take what they know, and are deleted whole.

    Args:
        directory: What is listed.
        name: The object's name; with a slash at its end all that begin so.
        tool: The command of the service that deletes one object, and with ``--recursive`` all that begin so.
        scheme: The scheme that this tool knows.
    """
    path = StorePath(directory.scheme, directory.authority, f"/{name}")
    if working_directory_in(path.path):
        return None
    place = shlex.quote(f"{scheme}://{directory.authority}/{name}")
    every = name.endswith("/")
    told = "the names of objects there have" if every else "its name has"
    return FileStatus(
        path,
        False,
        0,
        is_special=True,
        refuses=Refusals(
            move=f"{told} an empty segment, . or .., which no path can hold",
            advice=f"rename or delete {'them' if every else 'it'}: {tool}{' --recursive' * every} {place}",
        ),
    )


class Pages(Protocol):
    """Lists the names below a directory: one call a page. No page where nothing is below."""

    def __call__(
        self,
        operation: str,
        directory: StorePath,
        *,
        delimiter: str = "",
        markers: bool = False,
        most: int | None = None,
    ) -> AsyncIterator[list[FileStatus]]:
        """Iterates over the pages. One that shows that something is there comes, although it may hold no file.

        Args:
            operation: What errors call it.
            directory: Where.
            delimiter: A slash for the children only: those that have names below them are directories, and objects
                whose names no path can hold are shown as `odd_status` says.
            markers: Give markers too, as files: one of the directory itself under a path that ends in a slash.
            most: Ask for so many at most, and for one page.

        Raises:
            DestinationNotFoundError: There is no such bucket or container.
        """


class ObjectStore(Store):
    """A store whose directories are names below which other names lie, or where another tool left a marker.

    Markers are never listed as files, and are deleted with what is below them. A subclass says how an object is looked
    at, how names are listed by the page, and how objects are deleted.
    """

    _pages: Pages
    """Set by a subclass."""

    # --- What a subclass says -------------------------------------------------------------------------------------

    @abstractmethod
    def _checked(self, path: StorePath) -> StorePath:
        """The path, where it belongs here and the service takes its name."""

    @abstractmethod
    async def _object_at(self, operation: str, path: StorePath) -> FileStatus | None:
        """What the object of that very name is, a marker a directory; None without one. One call, none for the root."""

    @abstractmethod
    async def _delete_objects(self, operation: str, paths: Sequence[StorePath]) -> None:
        """Deletes the objects of a page, whether they still are there or not."""

    def _existing(self, path: StorePath, operation: str) -> StorePath:
        """The path, where something can stand there."""
        return self._checked(path)

    def _new(self, path: StorePath) -> StorePath:
        """The path, where something can be put there."""
        return self._checked(path)

    # --- The contract ---------------------------------------------------------------------------------------------

    async def status(self, path: StorePath) -> FileStatus:
        """Looks at a path; a file hides what lies below its name. Two calls where no file is."""
        found = await self._object_at("status", self._existing(path, "status"))
        if found is not None:
            return found
        async for _page in self._pages("status", path, most=1):
            return FileStatus(path, True, 0)
        raise StoreNotFoundError("nothing is there", operation="status", path=path)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the children, by pages of 1,000 or 5,000; two calls where nothing is below."""
        found = False
        async for page in self._pages("list", self._existing(directory, "list"), delimiter="/"):
            found = True
            for status in page:
                yield status
        if found:
            return
        standing = await self._object_at("list", directory)
        if standing is None:
            raise StoreNotFoundError("nothing is there", operation="list", path=directory)
        if not standing.is_directory:
            raise StoreNotADirectoryError("a file is there", operation="list", path=directory)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Does nothing: there are no directories. No call."""
        self._new(path)
        return True

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """Not here: a copy and a delete are no rename.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "this store renames no files: what looks like it copies them", operation="rename_file", path=source
        )

    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Not here.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("this store renames no directories", operation="rename_directory", path=source)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes what lies below a name, by the page. Else its marker, if it has one."""
        found = await self._delete_below(self._checked(path), recursive=recursive)
        if not found and await self._object_at("delete_directory", path) is not None:
            raise StoreNotADirectoryError("a file is there", operation="delete_directory", path=path)
        return found

    # --- Parts of it that are the same on all of them ---------------------------------------------------------------

    async def _delete_below(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes what a listing below a directory shows, its own marker too; whether it showed anything."""
        operation = "delete_directory"
        marker = StorePath(path.scheme, path.authority, f"{path.path.rstrip('/')}/")
        found = False
        async for page in self._pages(operation, path, markers=True, most=None if recursive else 2):
            found = True
            names = [status.path for status in page]
            # Never more than what was seen: others may put something there meanwhile.
            if not recursive and names != [marker]:
                raise StoreNotEmptyError("the directory has children", operation=operation, path=path)
            await self._delete_objects(operation, names)
        return found

    async def _check_absent(self, path: StorePath) -> None:
        """Looks where a writer is to make a file. One call.

        Raises:
            StoreExistsError: A file stands there.
        """
        standing = await self._object_at("open_writer", self._new(path))
        if standing is not None and not standing.is_directory:
            raise StoreExistsError("something stands there", operation="open_writer", path=path)


async def written_file(
    store: Store, path: StorePath, size: int, stamp: str, lost: StoreOutcomeUnknownError
) -> FileStatus:
    """The file whose making had its answer lost, if it stands there: one look.

    Args:
        store: Where.
        path: Where it was to stand.
        size: Its length.
        stamp: What it is stamped with, which no other file is.
        lost: The error of the call that made it.

    Raises:
        StoreOutcomeUnknownError: `lost` itself, where it does not stand there, or cannot be looked for.
    """
    try:
        found = await status_or_none(store, path)
    except CommitterError as hidden:
        # Never as what it is: a writer that is told that nothing was done puts the file again.
        raise unseen(lost, hidden, operation="close", path=path) from lost
    if found is None or (found.stamp, found.size) != (stamp, size):
        raise lost
    return found


def directory_prefix(directory: StorePath) -> str:
    """What the names below a directory begin with: its name with a slash, so that no sibling's do."""
    return "" if directory.path == "/" else f"{directory.path[1:]}/"


def listed_directory(name: str, directory: StorePath, odd: Callable[[str], FileStatus | None]) -> FileStatus | None:
    """The child that a listing tells by what the names below it begin with, a slash at the end.

    Args:
        name: What they begin with.
        directory: What was listed; what is not below it is passed over.
        odd: What stands for a child whose name no path can hold.
    """
    prefix = directory_prefix(directory)
    if not name.startswith(prefix):
        return None
    if is_odd(name[len(prefix) : -1]):
        return odd(name)
    return FileStatus(StorePath(directory.scheme, directory.authority, f"/{name[:-1]}"), True, 0)
