"""The store contract: what a committer needs of a place where files live.

Only abstract methods: a default method would silently bypass a wrapper that forgot to forward it (the lesson of
arrow's ``object_store``). Conveniences are functions, in `committer.stores.helpers`. Optional abilities are in
`committer.stores.abilities` and `committer.stores.uploads`; what wraps a store is a
`committer.stores.forwarding.ForwardingStore`.

Every operation is one coroutine. Its error says whether it can have had an effect: `StoreOutcomeUnknownError` may,
every other `StoreError` has not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from committer.paths import StorePath
from committer.stores.abilities import Capabilities, FileStatus, Refusals

__all__ = ["Capabilities", "FileStatus", "FileWriter", "Refusals", "Store"]


class FileWriter(ABC):
    """A file being written. It exists under its path only as the store allows; do not rely on it before `close`."""

    @abstractmethod
    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends `data`. The buffer may be reused when this returns."""

    @abstractmethod
    async def close(self) -> FileStatus:
        """Finishes the file and returns its status with the identity taken after the last byte."""

    @abstractmethod
    async def abort(self) -> None:
        """Gives the file up. What was written may stay under its path; raises nothing for a file already closed."""


class Store(ABC):
    """A place where files live. Cheap to make, opens lazily, holds no secret when pickled.

    Paths are absolute and belong to this store. Unless said otherwise each method is one store call.
    """

    @property
    @abstractmethod
    def scheme(self) -> str:
        """The URI scheme this store answers to."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """What limits are shared by: stores with one endpoint string share one pacer within a process."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the store can do; known without a call, and constant, except that `probe` or a call may find less, and
        `probe` more.
        """

    @abstractmethod
    async def probe(self, directory: StorePath) -> None:
        """Proves by trying, inside `directory`, the capabilities a commit relies on (identity kept through a rename,
        no-replace rename). A handful of calls at job setup; leaves nothing behind.

        Raises:
            UnsupportedError: One of them does not hold here.
        """

    @abstractmethod
    async def status(self, path: StorePath) -> FileStatus:
        """Looks at one path; of a link, at the link itself.

        Raises:
            StoreNotFoundError: Nothing is there. (Also when a parent is a file.)
        """

    @abstractmethod
    def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the direct children, each with the identity `status` would give; one call a page, any order.

        Raises:
            StoreNotFoundError: Nothing is there (or, without real directories, nothing is below it).
            StoreNotADirectoryError: A file is there.
        """

    @abstractmethod
    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file of at most `limit` bytes.

        Raises:
            StoreNotFoundError: Nothing is there. Its `operation` is ``read``; that of a `put` never is.
            StoreIsADirectoryError: A directory is there.
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
        """Writes a small file whole: a reader sees all of it or none.

        Args:
            path: Where it goes. Its parent must exist where directories are real; it is never made up, except as
                `Capabilities.implicit_parents` says.
            data: The whole content.
            exclusive: Fail when something is there, decided atomically by the store; else replace a file atomically.
            temporary: Where a store that must write first and rename after does so (same volume, overwritten); beside
                `path`, under a name starting with a period, when None. Its parent must exist, too, where late writes
                are refused (`Capabilities.refuses_late_writes`), until the file has its name.
            durable: Survive a power loss once this returns (data, then the name), on stores that are `durable`.

        Raises:
            StoreExistsError: `exclusive` and something is there.
            StoreIsADirectoryError: A directory is at `path`.
            StoreNotADirectoryError: A file is at one of its parents.
            StoreNotFoundError: The parent is missing, and not made up.
        """

    @abstractmethod
    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Creates a file for writing, replacing nothing.

        Raises:
            StoreExistsError: Something is there.
            StoreNotADirectoryError: A file is at one of its parents.
            StoreNotFoundError: The parent is missing, and not made up.
        """

    @abstractmethod
    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Makes a directory; without real directories does nothing and returns True.

        Args:
            path: The directory.
            parents: Make missing parents too; else a missing parent is an error.

        Returns:
            True when this call made it, False when a directory was there.

        Raises:
            StoreExistsError: A file is at `path`.
            StoreNotADirectoryError: A file is at one of its parents.
            StoreNotFoundError: The parent is missing and `parents` is False.
        """

    @abstractmethod
    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """Renames a file.

        Never moves it *into* a directory that stands at `destination`, never makes parents.

        Args:
            source: The file.
            destination: Its new path.
            replace: Replace a file that stands there; else fail, atomically.
            identity: What the source must be, enforced by stores with `conditional_rename`, ignored elsewhere.

        Raises:
            StoreNotFoundError: The source or the parent of the destination is missing; `path` says which.
            StoreExistsError: Something stands at the destination and `replace` is False.
            StoreIsADirectoryError: A directory stands at the destination and `replace` is True, or at the source.
            StorePreconditionError: The source is another file.
        """

    @abstractmethod
    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Renames a directory with all its content; never replaces or merges, never makes parents.

        Atomic where `atomic_directory_rename` holds; other stores raise `UnsupportedError`.

        Raises:
            StoreNotFoundError: The source or the parent of the destination is missing; `path` says which.
            StoreExistsError: Something stands at the destination.
            StoreNotADirectoryError: The source is a file.
        """

    @abstractmethod
    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file. True when there was one.

        Raises:
            StoreIsADirectoryError: A directory is there; nothing was deleted.
        """

    @abstractmethod
    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes a directory. True when there was one.

        Of a link to a directory only the link is deleted, and only when `recursive` is True.

        Raises:
            StoreNotEmptyError: It has children and `recursive` is False; or, rarely, others kept adding to it.
            StoreNotADirectoryError: A file is there, or a link and `recursive` is False; nothing was deleted.
        """

    @abstractmethod
    async def close(self) -> None:
        """Frees what the store opened. Safe to call twice; the store may be used again afterwards."""
