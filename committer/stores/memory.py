"""A store in memory, with the manners of the store it is told to be like: for tests, notebooks and simulations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal

import msgspec

from committer.errors import (
    ConfigurationError,
    RecordError,
    StoreIsADirectoryError,
    StoreNotFoundError,
    TaskError,
    UnsupportedError,
)
from committer.flow.runtime import current_runtime
from committer.paths import StorePath
from committer.stores._memory_tree import File, Tree, describe
from committer.stores.base import Capabilities, FileStatus, FileWriter, Store
from committer.stores.helpers import check_options

_FLAT: Final = Capabilities(directories=False, atomic_directory_rename=False, max_path_bytes=1024)

PROFILES: Final[Mapping[str, Capabilities]] = {
    "local": Capabilities(hard_links=True, durable=True, max_name_bytes=255, max_path_bytes=4095),
    "hdfs": Capabilities(max_name_bytes=255, max_path_bytes=8000),
    "adls": Capabilities(conditional_rename=True, forbids_trailing_period=True, max_path_bytes=1024),
    "gcs": msgspec.structs.replace(_FLAT, conditional_rename=True),
    "s3": msgspec.structs.replace(
        _FLAT,
        atomic_file_rename=False,
        no_replace_rename=False,
        replacing_rename=False,
        identity_through_rename=False,
    ),
}
"""What each profile can do.

``local`` and ``hdfs`` have real directories and rename them atomically; ``adls`` also checks the identity of what it
renames; ``gcs`` has no directories and renames one object at a time, with the stamp that is its identity; ``s3``
renames nothing.
"""

_DEFAULT_PROFILE: Final = "local"
# What a space can be told to be besides its profile; the rest of its capabilities follow from how it is built.
_FLAGS: Final = (
    "atomic_directory_rename",
    "case_folding",
    "conditional_rename",
    "forbids_trailing_period",
    "hard_links",
    "identity",
    "identity_through_rename",
    "no_replace_rename",
    "replacing_rename",
    "unicode_folding",
)


class MemorySpace:
    """A named file tree that every `MemoryStore` of this process with its name looks at.

    Its own methods are a way past the store, for tests: they need no event loop and see what really stands there.
    """

    def __init__(self, name: str, profile: str, capabilities: Capabilities) -> None:
        self.name = name
        self.profile = profile
        self.capabilities = capabilities
        self.tree: Tree = Tree(capabilities, lambda: current_runtime().now().timestamp())

    def store(self) -> MemoryStore:
        """A store over this space."""
        return MemoryStore(self.name)

    def path(self, name: str) -> StorePath:
        """The path of a name in this space, given without its first slash."""
        return StorePath("memory", self.name, f"/{name}")

    def files(self) -> dict[str, bytes]:
        """Every file: its absolute path and its content."""
        return {path.path: file.data for path, file in self.tree if file is not None}

    def directories(self) -> set[str]:
        """The absolute path of every real directory, the root left out."""
        return {path.path for path, file in self.tree if file is None}

    def write(self, path: str, data: bytes) -> None:
        """Puts a file at an absolute path, with the directories it needs, over what file stands there."""
        at = StorePath("memory", self.name, path)
        self.tree.make_directory(at.parent, parents=True)
        self.tree.put(at, self.tree.new_file(data), "put", replace=True)

    def clear(self) -> None:
        """Deletes everything."""
        self.tree.delete_directory(StorePath("memory", self.name, "/"), recursive=True)


_spaces: dict[str, MemorySpace] = {}


class MemoryStore(Store):
    """Files of a space: ``memory://space/path``.

    A space lives as long as the process, and is made when it is first used. Pickles by its name, so what comes back in
    another process is another, empty space. Every call lets other tasks run once and then happens in one step.

    Args:
        name: The space.
    """

    def __init__(self, name: str) -> None:
        self._space = self.space(name)

    @staticmethod
    def space(name: str, profile: str | None = None, **flags: bool) -> MemorySpace:
        """The space of a name, made at the first use.

        Args:
            name: Any name that can be the authority of a URI.
            profile: One of `PROFILES`; ``local`` when it is made without one.
            flags: Single capabilities that differ from the profile, for example ``case_folding=True``.

        Raises:
            ConfigurationError: There is no such profile or flag, or the space was made with others.
        """
        found = _spaces.get(name)
        if found is not None and profile is None and not flags:
            return found
        profile = profile or (found.profile if found is not None else _DEFAULT_PROFILE)
        if profile not in PROFILES:
            raise ConfigurationError(f"no memory profile {profile!r}; there are: {', '.join(PROFILES)}")
        check_options(flags, known=_FLAGS, scheme="memory")
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
        """Forgets a space; stores that hold it keep it, those made later see a new one."""
        _spaces.pop(name, None)

    @classmethod
    def open_for(cls, path: StorePath, options: Mapping[str, object]) -> MemoryStore:
        """Makes the store for `path` from ``storage_options``: ``profile`` and the flags of `space`.

        Raises:
            ConfigurationError: An option is unknown, or the space was made with others.
        """
        check_options(options, known=("profile", *_FLAGS), scheme="memory")
        profile = options.get("profile")
        if profile is not None and not isinstance(profile, str):
            raise ConfigurationError(f"profile is {profile!r}; it must be a name", operation="open_store")
        flags = {}
        for name in _FLAGS:
            value = options.get(name)
            if isinstance(value, bool):
                flags[name] = value
            elif value is not None:
                raise ConfigurationError(f"{name} is {value!r}; it must be true or false", operation="open_store")
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
        """The space."""
        return f"memory://{self._space.name}"

    @property
    def capabilities(self) -> Capabilities:
        """Those of the space."""
        return self._space.capabilities

    async def probe(self, directory: StorePath) -> None:
        """Does nothing: a space can what it says."""
        await self._turn(directory)

    async def status(self, path: StorePath) -> FileStatus:
        """Looks at a path; without real directories a file hides what lies below its name."""
        return (await self._turn(path)).status(path)

    async def list(self, directory: StorePath) -> AsyncIterator[FileStatus]:
        """Iterates over the children, as they were when it began."""
        for status in (await self._turn(directory)).children(directory):
            yield status

    async def read(self, path: StorePath, *, limit: int) -> bytes:
        """Reads a whole file."""
        data = (await self._turn(path)).file(path, "read").data
        if len(data) > limit:
            raise RecordError(f"a file is longer than the {limit} bytes it may have", operation="read", path=path)
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
        """Puts a file; `temporary` and `durable` are not needed."""
        tree = await self._turn(path)
        file = tree.new_file(bytes(data))
        tree.put(path, file, "put", replace=not exclusive)
        return describe(path, file)

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        """Opens a file; it appears now where directories are real, else when it is closed."""
        tree = await self._turn(path)
        tree.check_free(path, "open_writer", replace=False)
        file = tree.new_file(b"")
        if tree.capabilities.directories:
            tree.put(path, file, "open_writer", replace=False)
        return _MemoryWriter(tree, path, file)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Makes a directory."""
        return (await self._turn(path)).make_directory(path, parents=parents)

    async def rename_file(
        self, source: StorePath, destination: StorePath, *, replace: bool = False, identity: str | None = None
    ) -> None:
        """Renames a file, where `Capabilities.atomic_file_rename` holds."""
        tree = await self._turn(source, destination)
        able = tree.capabilities.replacing_rename if replace else tree.capabilities.no_replace_rename
        if not (able and tree.capabilities.atomic_file_rename):
            raise UnsupportedError("this space does not rename files so", operation="rename_file", path=source)
        tree.rename_file(source, destination, replace=replace, identity=identity)

    async def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Renames a directory, where `Capabilities.atomic_directory_rename` holds."""
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
        """Gives the file at `source` a second name; fails like a no-replace rename.

        Raises:
            UnsupportedError: `Capabilities.hard_links` does not hold.
        """
        tree = await self._turn(source, destination)
        if not tree.capabilities.hard_links:
            raise UnsupportedError("this space has no hard links", operation="link_file", path=source)
        tree.put(destination, tree.file(source, "link_file"), "link_file", replace=False)

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        """Looks whether the path is there; nothing in memory survives a power loss.

        Raises:
            StoreNotFoundError: Nothing is there.
        """
        (await self._turn(path)).status(path)

    async def close(self) -> None:
        """Does nothing; the space stays."""

    async def _turn(self, *paths: StorePath) -> Tree:
        for path in paths:
            if path.scheme != "memory" or path.authority != self._space.name:
                raise ConfigurationError("the path belongs to another store", path=path)
        await asyncio.sleep(0)
        return self._space.tree


class _MemoryWriter(FileWriter):
    def __init__(self, tree: Tree, path: StorePath, file: File) -> None:
        self._tree = tree
        self._path = path
        self._file = file
        self._buffer = bytearray()
        self._open = True

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        self._check_open("write")
        self._buffer += data
        await asyncio.sleep(0)

    async def close(self) -> FileStatus:
        self._check_open("close")
        await asyncio.sleep(0)
        self._open = False
        file = self._tree.new_file(bytes(self._buffer))
        if self._tree.capabilities.directories:
            if not self._stands():
                raise StoreNotFoundError(
                    "the file was deleted while it was written", operation="close", path=self._path
                )
            # In place, since a hard link made meanwhile is the same file.
            self._file.data, self._file.identity, self._file.modified = file.data, file.identity, file.modified
        else:
            self._tree.put(self._path, file, "close", replace=False)
        return describe(self._path, file)

    async def abort(self) -> None:
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
            raise TaskError(
                "a file cannot be written any more: it was closed or aborted", operation=operation, path=self._path
            )
