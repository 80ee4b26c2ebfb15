"""Store of the local disk, for `file:` paths."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from committer.errors import ConfigurationError, InvalidPathError, StoreError
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus, FileWriter, Store
from committer.stores.batches import HEAVY, LIGHT, MANY, WHOLE_BATCH, BatchExecutor
from committer.stores.helpers import bytes_of, check_options, unusable_writer
from committer.stores.local.calls import Buffer, Entries, Page
from committer.stores.local.disk import Disk

_BUFFER_BYTES: Final = 1 << 20
_MACOS: Final = sys.platform == "darwin"
_LINUX: Final = sys.platform.startswith("linux")


class LocalStore(Store):
    """Store of this machine's files, and of mounted ones.

    Calls of many coroutines go to a thread together. A cancelled call that a thread has begun ends before
    ``CancelledError`` goes on, so it has no later effect.

    - Status and listings describe a link itself, with its own identity; `is_directory` alone describes its target.
      Deletes and renames affect the link, reads follow it.
    - Java's checksum sidecars (``.name.crc`` beside ``name``) are never listed. They are removed with their file, or
      when another file takes its name.
    - Without a rename that replaces nothing, files are renamed by link and unlink (both names exist for a moment)
      and directories are not renamed. `probe` or the first rename finds out and updates `capabilities`.

    Args:
        threads: Most threads; quick calls of a kind share one, a slow disk or distant file server gets more.
        no_replace: ``auto``, or ``link`` to never use the kernel's rename that replaces nothing.
        case_folding: Whether names that differ in case or Unicode normalisation are one file; by default on macOS.
    """

    def __init__(
        self, *, threads: int = 4, no_replace: Literal["auto", "link"] = "auto", case_folding: bool | None = None
    ) -> None:
        if no_replace not in ("auto", "link"):
            raise ConfigurationError(
                f"no_replace is {no_replace!r}; it can be 'auto' or 'link'",
                next_step="give 'auto' or 'link', or leave it out",
            )
        if type(threads) is not int or threads < 1:
            raise ConfigurationError(
                f"threads is {threads!r}; it must be a number of at least 1",
                next_step="give a number of threads, or leave it out",
            )
        if case_folding is not None and not isinstance(case_folding, bool):
            raise ConfigurationError(
                f"case_folding is {case_folding!r}; it must be true or false",
                next_step="give true or false, or leave it out",
            )
        self._options: dict[str, Any] = {"threads": threads, "no_replace": no_replace, "case_folding": case_folding}
        self._batches = BatchExecutor(threads)
        self._disk = Disk(exclusive_rename=no_replace == "auto")
        self._folds = _MACOS if case_folding is None else case_folding
        self._writers: set[_LocalWriter] = set()
        self._capabilities = self._current_capabilities()

    @classmethod
    def open_for(cls, path: StorePath, options: Mapping[str, object]) -> LocalStore:
        """Creates the store from ``storage_options``, the arguments of the class.

        Raises:
            ConfigurationError: An option is unknown or invalid.
            InvalidPathError: The path names another machine.
        """
        if path.authority:
            raise InvalidPathError(
                f"{path} names a machine, {path.authority}, and this store is of this machine's disk",
                operation="open_store",
                path=path,
                next_step=f"if {path.authority} is a directory, three slashes begin the path: "
                f"file:///{path.authority}{path.path}",
            )
        check_options(options, known=("threads", "no_replace", "case_folding"), scheme="file")
        given: dict[str, Any] = dict(options)
        given.pop("http_session", None)
        return cls(**given)

    def __repr__(self) -> str:
        return "LocalStore()"

    def __reduce__(self) -> tuple[object, ...]:
        # Threads, open files and known abilities belong to this process.
        return partial(LocalStore, **self._options), ()

    @property
    def scheme(self) -> str:
        """``file``."""
        return "file"

    @property
    def endpoint(self) -> str:
        """``file``: the machine is one endpoint, with all its mounts."""
        return "file"

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities; `probe` or a rename may find that directory renames or hard links are missing."""
        known = self._capabilities
        if (known.atomic_directory_rename, known.hard_links) != (self._disk.exclusive_rename, self._disk.hard_links):
            known = self._capabilities = self._current_capabilities()
        return known

    async def probe(self, directory: StorePath) -> None:
        """Tests renames, refusals and links in `directory`; one hop to a thread."""
        nonce = current_runtime().nonce()
        self._disk.token = self._disk.token or nonce
        await self._batches.run(self._disk.probe, _checked(directory), nonce, weight=WHOLE_BATCH, insist=True)

    async def status(self, path: StorePath) -> FileStatus:
        """Returns the status of a path; of a link, its own."""
        return await self._batches.run(self._disk.status, _checked(path))

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the children without sidecars, a thousand per page."""
        page, entries = await self._batches.run(self._disk.list, _checked(directory), weight=8, undo=_close_listing)
        try:
            while True:
                for status in page:
                    yield status
                if entries is None:
                    return
                page, entries = await self._batches.run(self._disk.list, directory, entries, weight=WHOLE_BATCH)
        finally:
            if entries is not None:
                await self._batches.run(entries.close, insist=True)

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file."""
        return await self._batches.run(self._disk.read, _checked(path), limit, weight=4)

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """Writes a temporary file and renames it; one hop to a thread."""
        _checked(path)
        if temporary is None:
            # A prefix or suffix could make the name too long.
            temporary = path.parent / f".{current_runtime().nonce()}.tmp"
        return await self._batches.run(
            self._disk.put, path, data, _checked(temporary), exclusive, durable, weight=_weight(len(data), durable)
        )

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Creates the file at once, under its own name; buffers up to a megabyte."""
        handle = await self._batches.run(
            self._disk.open_writer, _checked(path), weight=2, undo=lambda opened: self._disk.abort(path, opened)
        )
        writer = _LocalWriter(self, path, handle, durable)
        self._writers.add(writer)
        return writer

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Creates a directory."""
        return await self._batches.run(self._disk.make_directory, _checked(path), parents, weight=2)

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        """Renames a file; `identity` only tells an intended link from one that took a file's place."""
        self._disk.token = self._disk.token or current_runtime().nonce()
        await self._batches.run(self._disk.rename_file, _checked(source), _checked(destination), replace, identity)

    async def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        looks: bool = True,
    ) -> dict[int, StoreError]:
        """Renames many files in one hop to a thread."""
        for source, destination in renames:
            # As `_checked`, without two calls for every file of a job.
            if "\0" in source.path or source.scheme != "file" or source.authority:
                _checked(source)
            if "\0" in destination.path or destination.scheme != "file" or destination.authority:
                _checked(destination)
        return await self._batches.run(self._disk.rename_files, renames, seen, weight=MANY)

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        """Renames a directory if `Capabilities.atomic_directory_rename` holds."""
        await self._batches.run(self._disk.rename_directory, _checked(source), _checked(destination))

    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file, and its sidecar."""
        return await self._batches.run(self._disk.delete_file, _checked(path))

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes a directory. Does not follow links in it, and ignores concurrent deletes."""
        weight = HEAVY if recursive else LIGHT
        return await self._batches.run(self._disk.delete_directory, _checked(path), recursive, weight=weight)

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        """Gives the file at `source` a second name; fails like a rename that replaces nothing."""
        await self._batches.run(self._disk.link_file, _checked(source), _checked(destination))

    async def enclose_file(self, path: StorePath, name: str) -> None:
        """Replaces a file with a directory that holds it, by an exchange of two names (Linux and macOS)."""
        await self._batches.run(self._disk.enclose_file, _checked(path), name)

    async def find_link(self, root: StorePath, directories: Collection[str]) -> str | None:
        """Finds a link on the way to many directories; one hop to a thread."""
        weight = min(MANY - 1, 1 + len(directories) // 8)
        return await self._batches.run(self._disk.find_link, _checked(root), directories, weight=weight)

    async def made_alike(self, pairs: Sequence[tuple[StorePath, StorePath]]) -> Sequence[bool]:
        """Compares directories with new ones of this process; one hop to a thread, on Linux only."""
        for directory, parent in pairs:
            _checked(directory)
            _checked(parent)
        weight = min(MANY - 1, 1 + len(pairs) // 8)
        return await self._batches.run(self._disk.made_alike, pairs[0][0], pairs, weight=weight)

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """Forces a file's data, or a directory's entries, to the disk; raises `StoreNotFoundError`."""
        await self._batches.run(self._disk.sync, _checked(path), kind == "directory", weight=WHOLE_BATCH)

    def local_path(self, path: StorePath) -> str:
        """Returns the operating system's path."""
        return _checked(path).path

    async def close(self) -> None:
        """Ends the threads and closes files of open writers; those files stay."""
        while self._writers:
            await self._writers.pop().release()
        await self._batches.close()

    def _current_capabilities(self) -> Capabilities:
        return Capabilities(
            atomic_directory_rename=self._disk.exclusive_rename,
            hard_links=self._disk.hard_links,
            checksum_sidecars=True,
            local_paths=True,
            batch_rename=True,
            directory_rights=_LINUX,
            durable=True,
            case_folding=self._folds,
            unicode_folding=self._folds,
            max_name_bytes=255,
            max_path_bytes=1023 if _MACOS else 4095,
        )


class _LocalWriter(FileWriter):
    """Writer of a file under its own name, by the megabyte, for one coroutine at a time."""

    def __init__(self, store: LocalStore, path: StorePath, handle: int, durable: bool) -> None:
        self._store = store
        self._path = path
        self._handle: int | None = handle
        self._durable = durable
        self._buffer = bytearray()
        self._offset = 0
        self._broken = False

    async def write(self, data: Buffer) -> None:
        handle = self._opened("write")
        data = bytes_of(data)
        if len(self._buffer) + len(data) < _BUFFER_BYTES:
            self._buffer += data
            return
        buffered, self._buffer = self._buffer, bytearray()
        offset = self._offset
        self._offset += len(buffered) + len(data)
        # An early end may leave a gap, and a file with a gap must never be closed as whole.
        self._broken = True
        await self._store._batches.run(
            self._store._disk.write, self._path, handle, (buffered, data), offset, weight=WHOLE_BATCH
        )
        self._broken = False

    async def close(self) -> FileStatus:
        handle = self._opened("close")
        store, data, offset = self._store, self._buffer, self._offset
        self._handle = None
        self._buffer = bytearray()
        store._writers.discard(self)
        try:
            return await store._batches.run(
                store._disk.close, self._path, handle, data, offset, self._durable,
                weight=_weight(len(data), self._durable), insist=True,
            )  # fmt: skip
        except BaseException:
            self._broken = True
            raise

    async def abort(self) -> None:
        handle, self._handle = self._handle, None
        self._store._writers.discard(self)
        if handle is not None or self._broken:
            self._broken = False
            await self._store._batches.run(self._store._disk.abort, self._path, handle, insist=True)

    async def release(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            # As heavy as a write, so that it runs after a waiting one.
            await self._store._batches.run(
                self._store._disk.release, self._path, handle, insist=True, weight=WHOLE_BATCH
            )

    def _opened(self, operation: str) -> int:
        if self._handle is None or self._broken:
            raise unusable_writer(self._path, operation, failed=self._broken)
        return self._handle


def _close_listing(listing: tuple[Page, Entries | None]) -> None:
    if listing[1] is not None:
        listing[1].close()


def _checked(path: StorePath) -> StorePath:
    if path.scheme != "file" or path.authority:
        raise ConfigurationError(
            "the path belongs to another store", path=path, next_step=f"a path of this disk is file://{path.path}"
        )
    if "\0" in path.path:
        # The system would cut the name off there.
        raise InvalidPathError("a path holds a NUL", path=ascii(str(path)), next_step="give a name without it")
    return path


def _weight(nbytes: int, durable: bool) -> int:
    weight = 2 + nbytes // 8192
    # Copying much data releases the interpreter's lock.
    return WHOLE_BATCH if durable or weight >= HEAVY else weight
