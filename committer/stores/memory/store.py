"""Store in memory that behaves as another kind of store, for tests, notebooks and simulations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from committer.errors import (
    ConfigurationError,
    StoreError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    StorePreconditionError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores.abilities import has_conditions
from committer.stores.base import Capabilities, FileStatus, FileWriter, Store
from committer.stores.helpers import bytes_of, check_options, too_long, unusable_writer
from committer.stores.memory.tree import Blocks, File, Tree, Uploads, describe
from committer.stores.uploads import PendingUpload, UncommittedBlock, UploadPart


class MemoryWriter(FileWriter):
    """Writer that buffers until `close`; with real directories the file exists from the start."""

    def __init__(self, tree: Tree, path: StorePath, file: File) -> None:
        self._tree = tree
        self._path = path
        self._file = file
        self._buffer = bytearray()
        self._open = True

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `FileWriter.write`."""
        self._check_open("write")
        self._buffer += bytes_of(data)
        await asyncio.sleep(0)

    async def close(self) -> FileStatus:
        """See `FileWriter.close`."""
        self._check_open("close")
        await asyncio.sleep(0)
        self._open = False
        file = self._tree.new_file(bytes(self._buffer))
        if self._tree.capabilities.directories:
            if not self._stands():
                raise StoreNotFoundError(
                    "the file was deleted while it was written", operation="close", path=self._path
                )
            # In place: a hard link made meanwhile is the same file.
            self._tree.fill(self._file, file)
        else:
            self._tree.put(self._path, file, "close", replace=False)
        return describe(self._path, file)

    async def abort(self) -> None:
        """See `FileWriter.abort`."""
        await asyncio.sleep(0)
        if self._open and self._stands():
            self._tree.delete_file(self._path)
        self._open = False

    def _stands(self) -> bool:
        try:
            return self._tree.file(self._path, "close") is self._file
        except (StoreNotFoundError, StoreIsADirectoryError):
            return False

    def _check_open(self, operation: str) -> None:
        if not self._open:
            raise unusable_writer(self._path, operation, failed=False)


_FLAT: Final = Capabilities(directories=False, atomic_directory_rename=False, max_path_bytes=1025)
_WITHOUT_RENAMES: Final = msgspec.structs.replace(
    _FLAT,
    atomic_file_rename=False,
    no_replace_rename=False,
    replacing_rename=False,
    identity_through_rename=False,
    conditional_delete=True,
    conditional_replace=True,
)

PROFILES: Final[Mapping[str, Capabilities]] = {
    "local": Capabilities(hard_links=True, durable=True, max_name_bytes=255, max_path_bytes=4095),
    "hdfs": Capabilities(deletes_trees=True, max_name_bytes=255, max_path_bytes=8000),
    "adls": Capabilities(
        implicit_parents=True,
        deletes_trees=True,
        conditional_rename=True,
        conditional_replace=True,
        tree_listing=True,
        forbids_trailing_period=True,
        max_path_bytes=1024,
    ),
    "gcs": msgspec.structs.replace(
        _FLAT,
        conditional_rename=True,
        versions=True,
        conditional_delete=True,
        conditional_replace=True,
        batch_delete=True,
        max_batch_delete=100,
    ),
    # S3's minimum part of 5 MiB is left to a flag, since tests have small files.
    "s3": msgspec.structs.replace(
        _WITHOUT_RENAMES,
        multipart=True,
        batch_delete=True,
        conditional_batch_delete=True,
        max_parts=10_000,
        max_part_bytes=5 << 30,
        max_batch_delete=1000,
    ),
    "azure-flat": msgspec.structs.replace(
        _WITHOUT_RENAMES, block_lists=True, forbids_trailing_period=True, max_parts=50_000, max_part_bytes=4000 << 20
    ),
}
"""Capabilities of each profile.

``local`` and ``hdfs`` have real directories and rename them atomically; ``adls`` also checks the identity in a
rename and creates missing parents. ``gcs`` has no directories and renames single objects, which keep their identity
and get a new version. ``s3`` and ``azure-flat`` (blobs without a hierarchical namespace) rename nothing and publish
by uploads or lists of blocks.
"""

DEFAULT_PROFILE: Final = "local"
# Capabilities that can differ from the profile; the others follow from the implementation.
FLAGS: Final = (
    "atomic_directory_rename",
    "batch_delete",
    "block_lists",
    "case_folding",
    "conditional_batch_delete",
    "conditional_delete",
    "conditional_rename",
    "conditional_replace",
    "deletes_by_name",
    "deletes_trees",
    "forbids_trailing_period",
    "hard_links",
    "identity",
    "identity_through_rename",
    "multipart",
    "no_replace_rename",
    "replacing_rename",
    "unicode_folding",
    "versions",
)
LIMITS: Final = ("max_batch_delete", "max_part_bytes", "max_parts", "min_part_bytes")


class MemorySpace:
    """Named file tree, shared by every `MemoryStore` of that name in this process.

    Its own methods bypass the store, for tests: they need no event loop and see the actual content.
    """

    def __init__(self, name: str, profile: str, capabilities: Capabilities) -> None:
        self.name = name
        self.profile = profile
        self.capabilities = capabilities
        self.tree: Tree = Tree(capabilities, _now)
        self.uploads: Uploads = Uploads(self.tree, _now)
        self.blocks: Blocks = Blocks(self.tree, _now)

    def store(self) -> MemoryStore:
        """Creates a store over this space."""
        return MemoryStore(self.name)

    def path(self, name: str) -> StorePath:
        """Returns the path of a name, given without its first slash."""
        return StorePath("memory", self.name, f"/{name}")

    def files(self) -> dict[str, bytes]:
        """Returns the content of every file by absolute path."""
        return {path.path: file.data for path, file in self.tree if file is not None}

    def directories(self) -> set[str]:
        """Returns the absolute paths of all real directories but the root."""
        return {path.path for path, file in self.tree if file is None}

    def write(self, path: str, data: bytes) -> None:
        """Writes a file at an absolute path, with its parents, replacing an existing file."""
        at = StorePath("memory", self.name, path)
        self.tree.make_directory(at.parent, parents=True)
        self.tree.put(at, self.tree.new_file(data), "put", replace=True)

    def clear(self) -> None:
        """Deletes all files, uploads and blocks."""
        self.tree.delete_directory(StorePath("memory", self.name, "/"), recursive=True)
        self.uploads.clear()
        self.blocks.clear()


_spaces: dict[str, MemorySpace] = {}


class MemoryStore(Store):
    """Store of the files in a space: ``memory://space/path``.

    The space `name` is created at its first use and lives as long as the process. A store pickles by the name, so in
    another process it has another, empty space. Each call lets other tasks run once and then happens in one step.
    """

    def __init__(self, name: str) -> None:
        self._space = self.space(name)

    @staticmethod
    def space(name: str, profile: str | None = None, **flags: int) -> MemorySpace:
        """Returns the space of a name, created at its first use with one of `PROFILES`, by default ``local``.

        `flags` are single capabilities that differ from the profile, such as ``case_folding=True`` or
        ``min_part_bytes=16``.

        Raises:
            ConfigurationError: The profile or flag is unknown, or the space was created with others.
        """
        found = _spaces.get(name)
        if found is not None and profile is None and not flags:
            return found
        profile = profile or (found.profile if found is not None else DEFAULT_PROFILE)
        if profile not in PROFILES:
            raise ConfigurationError(f"no memory profile {profile!r}; there are: {', '.join(PROFILES)}")
        check_options(flags, known=(*FLAGS, *LIMITS), scheme="memory")
        wanted = msgspec.structs.replace(PROFILES[profile], **flags)
        if found is None:
            found = _spaces[name] = MemorySpace(name, profile, wanted)
        elif found.capabilities != wanted:
            raise ConfigurationError(
                f"the memory space {name!r} was made with profile {found.profile!r} and other abilities",
                next_step="give the profile where the space is first used, or another name",
            )
        return found

    @staticmethod
    def forget(name: str) -> None:
        """Forgets a space; existing stores keep it, later ones get a new one."""
        _spaces.pop(name, None)

    @classmethod
    def open_for(cls, path: StorePath, options: Mapping[str, object]) -> MemoryStore:
        """Creates the store from ``storage_options``: ``profile`` and the flags of `space`; raises as `space`."""
        check_options(options, known=("profile", *FLAGS, *LIMITS), scheme="memory")
        profile = options.get("profile")
        if profile is not None and not isinstance(profile, str):
            raise ConfigurationError(f"profile is {profile!r}; it must be a name", operation="open_store")
        flags: dict[str, int] = {}
        for names, kind, must in ((FLAGS, bool, "true or false"), (LIMITS, int, "a whole number")):
            for name in names:
                value = options.get(name)
                if type(value) is kind:
                    flags[name] = value
                elif value is not None:
                    raise ConfigurationError(f"{name} is {value!r}; it must be {must}", operation="open_store")
        cls.space(path.authority, profile, **flags)
        return cls(path.authority)

    def __repr__(self) -> str:
        return f"MemoryStore({self._space.name!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return MemoryStore, (self._space.name,)

    @property
    def scheme(self) -> str:
        """``memory``."""
        return "memory"

    @property
    def endpoint(self) -> str:
        """The URI of the space."""
        return f"memory://{self._space.name}"

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the space."""
        return self._space.capabilities

    async def probe(self, directory: StorePath) -> None:
        """Does nothing."""
        await self._turn(directory)

    async def status(self, path: StorePath) -> FileStatus:
        """Returns the status of a path; without real directories a file hides the names below it."""
        return (await self._turn(path)).status(path)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the children, as of the start."""
        for status in (await self._turn(directory)).children(directory):
            yield status

    async def list_tree(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over everything below, as of the start."""
        for status in (await self._turn_if("tree_listing", "list_tree", directory)).tree.below(directory):
            yield status

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file."""
        data = (await self._turn(path)).file(path, "read").data
        if len(data) > limit:
            raise too_long(path, limit)
        return data

    async def put(
        self,
        path: StorePath,
        data: bytes,
        *,
        exclusive: bool = False,
        temporary: StorePath | None = None,
        durable: bool = False,
    ) -> FileStatus:
        """Writes a file; of `temporary` only the parent is checked."""
        tree = await self._turn(path)
        if temporary is not None and tree.capabilities.refuses_late_writes:
            tree.check_free(temporary, "put", replace=True)
        file = tree.new_file(bytes(data))
        tree.put(path, file, "put", replace=not exclusive)
        return describe(path, file)

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Opens a file; without real directories the file appears when closed."""
        tree = await self._turn(path)
        tree.check_free(path, "open_writer", replace=False)
        file = tree.new_file(b"")
        if tree.capabilities.directories:
            tree.put(path, file, "open_writer", replace=False)
        return MemoryWriter(tree, path, file)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Creates a directory."""
        return (await self._turn(path)).make_directory(path, parents=parents)

    async def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        *,
        replace: bool = False,
        identity: str | None = None,
        version: str | None = None,
    ) -> None:
        """Renames a file if `Capabilities.atomic_file_rename` holds."""
        tree = await self._turn(source, destination)
        able = tree.capabilities.replacing_rename if replace else tree.capabilities.no_replace_rename
        if not (able and tree.capabilities.atomic_file_rename):
            raise UnsupportedError("this space does not rename files so", operation="rename_file", path=source)
        file = tree.find(source, "rename_file") if version is not None and not replace else None
        if file is not None and tree.capabilities.versions:
            if file.version == version:
                identity = None
            elif identity is None:
                raise StorePreconditionError("the source is another file", operation="rename_file", path=source)
        tree.rename_file(source, destination, replace=replace, identity=identity)

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        """Renames a directory if `Capabilities.atomic_directory_rename` holds."""
        tree = await self._turn(source, destination)
        if not tree.capabilities.atomic_directory_rename:
            raise UnsupportedError("this space renames no directories", operation="rename_directory", path=source)
        tree.rename_directory(source, destination)

    async def delete_file(self, path: StorePath) -> bool:
        """Deletes a file."""
        return (await self._turn(path)).delete_file(path)

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes a directory."""
        return (await self._turn(path)).delete_directory(path, recursive=recursive)

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        """See `SupportsHardLinks.link_file`; raises `UnsupportedError` without `Capabilities.hard_links`."""
        tree = await self._turn(source, destination)
        if not tree.capabilities.hard_links:
            raise UnsupportedError("this space has no hard links", operation="link_file", path=source)
        tree.put(destination, tree.file(source, "link_file"), "link_file", replace=False)

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """Checks that the path exists; raises `StoreNotFoundError`."""
        (await self._turn(path)).status(path)

    async def delete_file_if(self, path: StorePath, *, identity: str) -> bool:
        """See `SupportsConditionalDelete.delete_file_if`; raises `UnsupportedError` without the capability."""
        space = await self._turn_if("conditional_delete", "delete_file_if", path)
        return space.tree.delete_file_if(path, identity)

    async def replace_file(self, path: StorePath, data: bytes, *, seen: FileStatus) -> FileStatus:
        """See `SupportsConditionalReplace.replace_file`; raises `UnsupportedError` without the capability."""
        tree = (await self._turn_if("conditional_replace", "put", path)).tree
        file = tree.new_file(bytes(data))
        tree.replace(path, file, seen.identity)
        return describe(path, file)

    async def delete_files(self, files: Mapping[StorePath, str | None]) -> Mapping[StorePath, StoreError]:
        """See `SupportsBatchDelete.delete_files`; raises `UnsupportedError` without the capability."""
        if not files:
            return {}
        needed = "conditional_batch_delete" if has_conditions(files) else "batch_delete"
        return (await self._turn_if(needed, "delete_files", *files)).tree.delete_files(files)

    async def put_described(self, path: StorePath, data: bytes, *, metadata: Mapping[str, str]) -> FileStatus:
        """Writes a file and drops its metadata."""
        tree = (await self._turn_if("multipart", "put", path)).tree
        file = tree.new_file(bytes(data))
        tree.put(path, file, "put", replace=True)
        return describe(path, file)

    async def create_upload(self, path: StorePath, *, stamp: str) -> str:
        """See `SupportsUploads.create_upload`; upload calls raise `UnsupportedError` without the capability."""
        return (await self._uploads(path, "create_upload")).create(path, stamp)

    async def put_part(
        self, path: StorePath, upload_id: str, number: int, data: bytes | bytearray | memoryview
    ) -> UploadPart:
        """See `SupportsUploads.put_part`."""
        content = bytes(data)
        return (await self._uploads(path, "put_part")).put_part(path, upload_id, number, content)

    async def complete_upload(
        self, path: StorePath, upload_id: str, parts: Sequence[UploadPart], *, exclusive: bool = False
    ) -> str | None:
        """Completes an upload; an exclusive one raises a conflict if the file changes during the call."""
        before = self._space.tree.find(path, "complete_upload")
        uploads = await self._uploads(path, "complete_upload")
        return uploads.complete(path, upload_id, parts, exclusive=exclusive, before=before)

    async def abort_upload(self, path: StorePath, upload_id: str) -> bool:
        """See `SupportsUploads.abort_upload`."""
        return (await self._uploads(path, "abort_upload")).abort(path, upload_id)

    async def list_uploads(self, directory: StorePath) -> AsyncIterator[PendingUpload]:
        """Iterates over the uploads, as of the start."""
        for upload in (await self._uploads(directory, "list_uploads")).below(directory):
            yield upload

    async def list_parts(self, path: StorePath, upload_id: str) -> AsyncIterator[UploadPart]:
        """Iterates over the parts, as of the start."""
        for part in (await self._uploads(path, "list_parts")).parts(path, upload_id):
            yield part

    async def put_block(self, path: StorePath, block_id: str, data: bytes | bytearray | memoryview) -> None:
        """See `SupportsBlockLists.put_block`; block calls raise `UnsupportedError` without the capability."""
        content = bytes(data)
        (await self._turn_if("block_lists", "put_block", path)).blocks.put(path, block_id, content)

    async def put_block_list(
        self,
        path: StorePath,
        block_ids: Sequence[str],
        *,
        stamp: str,
        exclusive: bool = False,
        identity: str | None = None,
    ) -> str | None:
        """See `SupportsBlockLists.put_block_list`."""
        space = await self._turn_if("block_lists", "put_block_list", path)
        return space.blocks.commit(path, block_ids, stamp=stamp, exclusive=exclusive, identity=identity)

    async def list_uncommitted_blocks(self, path: StorePath) -> Sequence[UncommittedBlock]:
        """See `SupportsBlockLists.list_uncommitted_blocks`."""
        return (await self._turn_if("block_lists", "list_uncommitted_blocks", path)).blocks.listed(path)

    async def close(self) -> None:
        """Does nothing; the space stays."""

    async def _turn(self, *paths: StorePath) -> Tree:
        for path in paths:
            if path.scheme != "memory" or path.authority != self._space.name:
                raise ConfigurationError("the path belongs to another store", path=path)
        await asyncio.sleep(0)
        return self._space.tree

    async def _turn_if(self, ability: str, operation: str, *paths: StorePath) -> MemorySpace:
        await self._turn(*paths)
        if not getattr(self.capabilities, ability):
            raise UnsupportedError(f"this space lacks: {ability}", operation=operation, path=paths[0])
        return self._space

    async def _uploads(self, path: StorePath, operation: str) -> Uploads:
        return (await self._turn_if("multipart", operation, path)).uploads


def _now() -> float:
    return current_runtime().now().timestamp()
