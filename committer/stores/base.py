"""Interfaces of a store and of its file writers: the store contract.

Every method is abstract: a default would silently bypass a wrapper that forgot to forward the call (as happened in
arrow's ``object_store``). Conveniences are functions in `committer.stores.helpers`, optional abilities are in
`committer.stores.abilities` and `committer.stores.uploads`, wrappers derive from
`committer.stores.forwarding.ForwardingStore`. An operation that raises `StoreOutcomeUnknownError` may have had an
effect; any other `StoreError` means none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from committer.paths import StorePath
from committer.stores.abilities import Capabilities, FileStatus, Refusals

__all__ = ["Capabilities", "FileStatus", "FileWriter", "Refusals", "Store"]


class FileWriter(ABC):
    """Writer of one new file. The file need not be visible under its path before `close`."""

    @abstractmethod
    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends `data`. The caller may reuse the buffer when this returns."""

    @abstractmethod
    async def close(self) -> FileStatus:
        """Finishes the file and returns its status, with the identity as of the last byte."""

    @abstractmethod
    async def abort(self) -> None:
        """Abandons the file; what was written may stay under its path. Does nothing to a closed file."""


class Store(ABC):
    """Storage for files, such as a file system or a bucket.

    A store is cheap to create, connects at its first call and holds no secret when pickled. Paths are absolute and
    belong to this store. Each method is one store call unless it says otherwise.
    """

    @property
    @abstractmethod
    def scheme(self) -> str:
        """The URI scheme of this store."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """The key of shared limits: within a process, stores with an equal endpoint share one pacer."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The capabilities of the store, known without a call.

        Constant, except that `probe` can add or withdraw a capability and any other call can withdraw one.
        """

    @abstractmethod
    async def probe(self, directory: StorePath) -> None:
        """Tests, inside `directory`, the capabilities that a commit relies on. A few calls, once per job setup.

        These are an identity that a rename keeps, and renames that replace nothing. No file of the test is left.

        Raises:
            UnsupportedError: The store lacks one of them here.
        """

    @abstractmethod
    async def status(self, path: StorePath) -> FileStatus:
        """Returns the status of one path; of a link, that of the link itself.

        Raises:
            StoreNotFoundError: Nothing exists there, or a parent is a file.
        """

    @abstractmethod
    def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the direct children, in any order, with the identity that `status` gives. One call per page.

        Raises:
            StoreNotFoundError: Nothing exists there (without real directories: nothing exists below it).
            StoreNotADirectoryError: `directory` is a file.
        """

    @abstractmethod
    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file of at most `limit` bytes.

        Raises:
            StoreNotFoundError: Nothing exists there. Its `operation` is ``read``, which that of a `put` never is.
            StoreIsADirectoryError: `path` is a directory.
            RecordError: The file is longer than `limit`; at most `limit` + 1 bytes were read.
        """

    @abstractmethod
    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """Writes a small file as a whole: a reader sees all of it or none.

        Args:
            path: The file. Where directories are real its parent must exist, except as
                `Capabilities.implicit_parents` says.
            exclusive: Fail if the path exists, which the store decides atomically; else replace a file atomically.
            temporary: The temporary name for a store that writes first and renames then; same volume, overwritten.
                By default it is next to `path` and starts with a period. Where `Capabilities.refuses_late_writes`
                holds, its parent must exist, too, until the file has its name.
            durable: Return only when the data, then the name, survive a power loss, on stores that are `durable`.

        Raises:
            StoreExistsError: `exclusive` and the path exists.
            StoreIsADirectoryError: `path` is a directory.
            StoreNotADirectoryError: A parent is a file.
            StoreNotFoundError: The parent does not exist and is not created implicitly.
        """

    @abstractmethod
    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Creates a file for writing; replaces nothing.

        Raises:
            StoreExistsError: The path exists.
            StoreNotADirectoryError: A parent is a file.
            StoreNotFoundError: The parent does not exist and is not created implicitly.
        """

    @abstractmethod
    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Creates a directory; without real directories does nothing and returns True.

        A missing parent is created with `parents`, else an error. Returns True if this call created the directory,
        False if it existed.

        Raises:
            StoreExistsError: `path` is a file.
            StoreNotADirectoryError: A parent is a file.
            StoreNotFoundError: The parent does not exist and `parents` is False.
        """

    @abstractmethod
    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        """Renames a file; never moves it *into* a directory at `destination`, never creates parents.

        Args:
            replace: Replace a file at the destination; else fail if one exists, atomically.
            identity: The identity that the source must have; stores without `conditional_rename` ignore it.
            version: A `FileStatus.version` of the source, so that a rename which replaces nothing needs no look: a
                file of this version is renamed. One of another version (it was renamed and back since, or a record
                holds another text) must have the identity, and is refused if none is given. Stores without
                `versions` ignore it, and all do with `replace`.

        Raises:
            StoreNotFoundError: The source or the destination's parent does not exist; `path` says which.
            StoreExistsError: The destination exists and `replace` is False.
            StoreIsADirectoryError: The source is a directory, or the destination is and `replace` is True.
            StorePreconditionError: The source is another file, or nothing proves that it is not.
        """

    @abstractmethod
    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        """Renames a directory with all its content; never replaces or merges, never creates parents.

        Atomic where `atomic_directory_rename` holds; other stores raise `UnsupportedError`.

        Args:
            known: The source is a directory, or may be a file that is renamed as well: spares the look of a service
                that renames both alike. Its `StoreNotFoundError` has the outcome ``unknown`` then if something
                exists at the destination, which this very request may have put there.

        Raises:
            StoreNotFoundError: The source or the destination's parent does not exist; `path` says which.
            StoreExistsError: The destination exists.
            StoreNotADirectoryError: The source is a file, and `known` is False.
        """

    @abstractmethod
    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file and returns whether it existed.

        Raises:
            StoreIsADirectoryError: `path` is a directory; nothing was deleted.
        """

    @abstractmethod
    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes a directory and returns whether it existed.

        Of a link to a directory only the link is deleted, and only if `recursive` is True.

        Raises:
            StoreNotEmptyError: It has children and `recursive` is False; rarely, other clients kept adding children.
            StoreNotADirectoryError: `path` is a file, or a link and `recursive` is False; nothing was deleted.
        """

    @abstractmethod
    async def close(self) -> None:
        """Closes connections and threads. May be called twice; a later call opens them again."""
