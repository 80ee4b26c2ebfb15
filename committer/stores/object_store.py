"""Base of object stores, which have no real directories.

An object whose name has an empty segment, ``.`` or ``..`` has no `StorePath`, and programs that read a bucket as a
tree open another object under that name, or none. Listings show it as neither file nor directory, so that code which
counts, replaces or compares a directory's content finds it.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

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
from committer.readable import UNDECODABLE
from committer.stores.abilities import BATCH_DELETE, FileStatus, Refusals
from committer.stores.base import FileWriter, Store
from committer.stores.helpers import status_or_none, unseen
from committer.stores.http_answers import PageTokens, unreadable

_ODD: Final = ("", ".", "..")


async def delete_odd(store: Store, directory: StorePath) -> None:
    """Deletes objects of a job's directory that no path can name, and no listing shows there. At most 7 calls."""
    places = [StorePath(directory.scheme, directory.authority, f"{directory.path}/{segment}") for segment in _ODD]
    for place in places:
        # The name may be an object, too. A service that refuses a name has none (SeaweedFS: 400 for final dots).
        with suppress(StoreNotADirectoryError, ConfigurationError):
            await store.delete_directory(place, recursive=True)
    able = BATCH_DELETE.of(store)
    if able is not None:
        # Never by a request whose URL contains the dots: a proxy may resolve them.
        await able.delete_files(dict.fromkeys(place for place in places if not place.path.endswith("/")))


def odd_status(directory: StorePath, name: str, tool: str, scheme: str) -> FileStatus | None:
    """Returns the status of names that no path can hold; None in a job's own directory, which is deleted whole.

    `name` is an object, or with a trailing slash the prefix of several. `tool` is the service's command that deletes
    one object, or with ``--recursive`` all of a prefix, and knows `scheme`.
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


class Page(NamedTuple):
    """Page of a listing.

    Attributes:
        objects: Status of each object; of one that marks a directory under its plain name, a directory's.
        below: Names of directories, with their final slash.
        more: Token of the next page; None after the last.
    """

    objects: Sequence[FileStatus]
    below: Sequence[str]
    more: str | None


class ObjectStore(Store):
    """Base of stores in which a directory is a prefix of names, or a marker object of another tool.

    Markers are not listed as files, and are deleted with the names below them. A subclass looks at objects, lists
    names by the page and deletes objects.
    """

    # --- What a subclass implements ---

    @abstractmethod
    def _checked(self, path: StorePath) -> StorePath:
        """Returns the path, checked to be of this store and valid for the service."""

    @abstractmethod
    async def _object_at(self, operation: str, path: StorePath) -> FileStatus | None:
        """Returns the object's status (a marker is a directory), or None. One call; none for the root."""

    @abstractmethod
    async def _put_small(self, path: StorePath, data: bytes, *, exclusive: bool) -> FileStatus:
        """Writes a small file at a checked path, in one request."""

    @abstractmethod
    def _writer(self, path: StorePath) -> FileWriter:
        """Returns a writer at a checked path, whose file appears on close, if nothing is there then.

        It buffers 8 MiB: a shorter file is one request.
        """

    @abstractmethod
    async def _delete_objects(self, operation: str, paths: Sequence[StorePath]) -> None:
        """Deletes the objects of a page, whether they still exist or not."""

    @abstractmethod
    async def _page(
        self, operation: str, directory: StorePath, *, delimiter: str, most: int | None, token: str | None
    ) -> Page:
        """Lists a page of the names below a directory, by the token of the page before it. One call.

        With a slash as `delimiter` only the children are listed. `most` limits the names. Raises
        `DestinationNotFoundError` if the bucket does not exist, and `ValueError` for a number that is none.
        """

    @abstractmethod
    def _odd(self, directory: StorePath, name: str) -> FileStatus | None:
        """Returns the `odd_status` of a name."""

    def _existing(self, path: StorePath, operation: str) -> StorePath:
        """Checks a path that is read."""
        return self._checked(path)

    def _new(self, path: StorePath) -> StorePath:
        """Checks a path that is written."""
        return self._checked(path)

    # --- The contract ---

    async def status(self, path: StorePath) -> FileStatus:
        """Returns the status of a path; a file hides the names below it. Two calls if there is no file."""
        found = await self._object_at("status", self._existing(path, "status"))
        if found is not None:
            return found
        async for _page in self._pages("status", path, most=1):
            return FileStatus(path, True, 0)
        raise StoreNotFoundError("nothing is there", operation="status", path=path)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the children, by pages of 1,000 or 5,000; two calls if there are none."""
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

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """Writes a small file; needs no `temporary` and `durable`: an acknowledged put is whole and durable."""
        return await self._put_small(self._new(path), data, exclusive=exclusive)

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Checks that the path is free; the file appears on close, if nothing is there then. One call."""
        standing = await self._object_at("open_writer", self._new(path))
        if standing is not None and not standing.is_directory:
            raise StoreExistsError("something exists there", operation="open_writer", path=path)
        return self._writer(path)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Does nothing, since there are no directories. No call."""
        self._new(path)
        return True

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        """Raises `UnsupportedError`: a copy and a delete are no rename."""
        raise UnsupportedError(
            "this store renames no files: what looks like it copies them", operation="rename_file", path=source
        )

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        """Raises `UnsupportedError`."""
        raise UnsupportedError("this store renames no directories", operation="rename_directory", path=source)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes the names below a directory, by the page, with its marker."""
        found = await self._delete_below(self._checked(path), recursive=recursive)
        if not found and await self._object_at("delete_directory", path) is not None:
            raise StoreNotADirectoryError("a file is there", operation="delete_directory", path=path)
        return found

    # --- Shared parts ---

    async def _pages(
        self,
        operation: str,
        directory: StorePath,
        *,
        delimiter: str = "",
        markers: bool = False,
        most: int | None = None,
    ) -> AsyncIterator[Sequence[FileStatus]]:
        """Lists the names below a directory: one call per page, no page if nothing is below.

        A page may be empty where it only shows that something exists. With a slash as `delimiter` only the children
        are listed: those with names below them as directories, and objects whose names no path can hold as by
        `odd_status`. With `markers` these are listed as files, too, the directory's own with a trailing slash.
        `most` limits the names, to one page.
        """
        prefix, token, tokens = directory_prefix(directory), None, PageTokens(operation, directory)
        while True:
            try:
                page = await self._page(operation, directory, delimiter=delimiter, most=most, token=token)
            except CommitterError:
                raise  # some are ValueErrors too
            except (*UNDECODABLE, ValueError):
                raise unreadable(operation, directory, "a page of a listing") from None
            found = bool(page.objects or page.below)
            if found:
                files = [self._file(one, directory, prefix, delimiter, markers) for one in page.objects]
                files += [self._directory(name, directory, prefix) for name in page.below]
                yield [status for status in files if status is not None]
            # A page can be empty, and not the last.
            if page.more is None or (most is not None and found):
                return
            token = tokens.following(page.more)

    def _file(
        self, status: FileStatus, directory: StorePath, prefix: str, delimiter: str, markers: bool
    ) -> FileStatus | None:
        name = status.path.path[1:]
        marks = status.is_directory or name.endswith("/")
        if not name.startswith(prefix) or (marks and not markers):
            return None
        return self._odd(directory, name) if delimiter and name[len(prefix) :] in _ODD else status

    def _directory(self, name: str, directory: StorePath, prefix: str) -> FileStatus | None:
        if not name.startswith(prefix):
            return None
        if name[len(prefix) : -1] in _ODD:
            return self._odd(directory, name)
        return FileStatus(StorePath(directory.scheme, directory.authority, f"/{name[:-1]}"), True, 0)

    async def _delete_below(self, path: StorePath, *, recursive: bool) -> bool:
        operation = "delete_directory"
        marker = StorePath(path.scheme, path.authority, f"{path.path.rstrip('/')}/")
        found = False
        async for page in self._pages(operation, path, markers=True, most=None if recursive else 2):
            found = True
            names = [status.path for status in page]
            # Only listed names are deleted: others may be added meanwhile.
            if not recursive and names != [marker]:
                raise StoreNotEmptyError("the directory has children", operation=operation, path=path)
            await self._delete_objects(operation, names)
        return found


async def written_file(
    store: Store, path: StorePath, size: int, stamp: str, lost: StoreOutcomeUnknownError
) -> FileStatus:
    """Returns the status of a file whose write lost its response; raises `lost` if no such stamp and size exist."""
    try:
        found = await status_or_none(store, path)
    except CommitterError as hidden:
        # Never the look's own error: a writer that reads "nothing was done" would put the file again.
        raise unseen(lost, hidden, operation="close", path=path) from lost
    if found is None or (found.stamp, found.size) != (stamp, size):
        raise lost
    return found


def directory_prefix(directory: StorePath) -> str:
    """Returns the prefix of the names below a directory, with its slash."""
    return "" if directory.path == "/" else f"{directory.path[1:]}/"
