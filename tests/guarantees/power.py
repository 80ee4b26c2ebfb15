"""A disk that forgets: what POSIX promises of a power loss, and nothing more.

A name that was made, renamed or removed is durable once its directory was synced, the content of a file once the file
was. All else may be gone after a power loss. `PowerStore` does every call in memory (profile ``local``) and beside it
in a `Disk` of inodes, and takes a picture of what would be left before and after each effect. A picture becomes a new
memory space in which the job can be recovered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Literal

import msgspec

from committer.paths import StorePath
from committer.stores.base import FileStatus, FileWriter
from committer.stores.forwarding import ForwardingStore
from committer.stores.memory import MemorySpace, MemoryStore
from committer.stores.memory.tree import File

Tree = dict[str, "File | Tree"]

_numbers = count()


def new_space() -> MemorySpace:
    """An empty space with the manners of a local disk."""
    return MemoryStore.space(f"power-{next(_numbers)}", "local")


class _File:
    """A file's inode: what processes see, and what the disk has."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.synced = File(b"", "never synced", 0.0)

    def sync(self) -> None:
        self.synced = msgspec.structs.replace(self.file)


class _Directory:
    """A directory's inode: the names processes see, and those the disk has."""

    def __init__(self) -> None:
        self.names: dict[str, _Inode] = {}
        self.synced: dict[str, _Inode] = {}

    def sync(self) -> None:
        self.synced = dict(self.names)

    def changed(self) -> Iterator[str]:
        """Names that a power loss may change."""
        for name in sorted(self.names.keys() | self.synced.keys()):
            if self.names.get(name) is not self.synced.get(name):
                yield name


_Inode = _File | _Directory


class Disk:
    """The inodes behind a space."""

    def __init__(self) -> None:
        self.root = _Directory()

    def directory(self, path: StorePath) -> _Directory:
        """The directory at a path."""
        found: _Inode = self.root
        for segment in _segments(path):
            assert isinstance(found, _Directory)
            found = found.names[segment]
        assert isinstance(found, _Directory)
        return found

    def above(self, path: StorePath) -> _Directory:
        """The directory that holds a path's name."""
        return self.directory(path.parent)

    def make_directories(self, path: StorePath) -> None:
        """Makes a directory and its parents, where they are missing."""
        found = self.root
        for segment in _segments(path):
            inner = found.names.setdefault(segment, _Directory())
            assert isinstance(inner, _Directory)
            found = inner

    def move(self, source: StorePath, destination: StorePath) -> None:
        """Renames whatever is at `source`, over what is at `destination`."""
        inode = self.above(source).names.pop(source.name)
        self.above(destination).names[destination.name] = inode

    def left(self) -> Tree:
        """What a power loss leaves when everything goes that may go."""
        return _tree(self.root, {}, lambda directory: directory.synced, lambda file: file.synced)

    def left_by_chance(self, seed: int) -> Tree:
        """What a power loss leaves when an arbitrary part of what may go does.

        One thing is kept that POSIX does not promise and every journal does: what had a name all the time, its old one
        or the one it was renamed to, has one afterwards.
        """
        chance = random.Random(seed)
        kept: dict[_Directory, dict[str, _Inode]] = {}
        names: dict[_Inode, list[tuple[_Directory, str]]] = {}
        for directory in self._directories():
            kept[directory] = dict(directory.synced)
            for name, inode in directory.names.items():
                names.setdefault(inode, []).append((directory, name))
            for name in directory.changed():
                if chance.random() < 0.5:
                    _set(kept[directory], name, directory.names.get(name))
        old_names = {inode for directory in kept for inode in directory.synced.values()}
        while lost := (old_names & names.keys()) - {inode for held in kept.values() for inode in held.values()}:
            for inode in lost:
                for directory, name in names[inode]:
                    kept[directory][name] = inode
        whole = {id(file) for file in names if isinstance(file, _File) and chance.random() < 0.5}
        return _tree(
            self.root,
            {},
            lambda directory: kept.get(directory, directory.synced),
            lambda file: file.file if id(file) in whole else file.synced,
        )

    def _directories(self) -> list[_Directory]:
        found: list[_Directory] = []
        pending: list[_Inode] = [self.root]
        while pending:
            inode = pending.pop()
            if isinstance(inode, _Directory) and inode not in found:
                found.append(inode)
                pending.extend(inode.names.values())
                pending.extend(inode.synced.values())
        return found


def _set(names: dict[str, _Inode], name: str, inode: _Inode | None) -> None:
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _tree(
    directory: _Directory,
    copies: dict[_File, File],
    names_of: Callable[[_Directory], dict[str, _Inode]],
    file_of: Callable[[_File], File],
) -> Tree:
    tree: Tree = {}
    for name, inode in names_of(directory).items():
        if isinstance(inode, _Directory):
            tree[name] = _tree(inode, copies, names_of, file_of)
        else:
            # Two names of one file stay two names of one file.
            if inode not in copies:
                copies[inode] = msgspec.structs.replace(file_of(inode))
            tree[name] = copies[inode]
    return tree


def _segments(path: StorePath) -> list[str]:
    return [segment for segment in path.path.split("/") if segment]


class Picture(msgspec.Struct):
    """One moment, and what a power loss there would leave.

    Attributes:
        name: Of the space.
        moment: The call, and how far it was.
        promised: What had been promised by then.
        trees: What is left: first when all goes that may go, then by chance.
    """

    name: str
    moment: str
    promised: frozenset[str]
    trees: list[Tree]

    def space(self, tree: Tree) -> MemorySpace:
        """A new space that holds what is left, in place of the one it was taken of: records hold its name."""
        MemoryStore.forget(self.name)
        space = MemoryStore.space(self.name, "local")
        # No file made from now on may have an identity that one of the old ones has.
        space.tree._changes = 1_000_000
        _fill(space, tree, "")
        return space


def files_of(tree: Tree, above: str = "/") -> dict[str, bytes]:
    """Every file of a tree: its absolute path and its content."""
    found: dict[str, bytes] = {}
    for name, inode in tree.items():
        found |= {f"{above}{name}": inode.data} if isinstance(inode, File) else files_of(inode, f"{above}{name}/")
    return found


def _fill(space: MemorySpace, tree: Tree, above: str) -> None:
    for name, inode in tree.items():
        path = space.path(f"{above}{name}")
        if isinstance(inode, File):
            space.tree.put(path, inode, "put", replace=True)
        else:
            space.tree.make_directory(path, parents=False)
            _fill(space, inode, f"{above}{name}/")


class PowerStore(ForwardingStore):
    """A store in memory whose machine may lose power at any moment.

    Args:
        space: What lies on the disk already, durably.
        seeds: For each, one more way a power loss may end is kept in every picture.
        watched: Whether pictures are taken.

    Attributes:
        promised: What was promised so far; records of the job's fate are noted here, the rest by the test.
        pictures: One a moment that differs from the one before.
        syncs: How often something was forced to the disk.
        renamed: Where directories were renamed to.
    """

    def __init__(self, space: MemorySpace, seeds: int = 0, *, watched: bool = True) -> None:
        super().__init__(MemoryStore(space.name))
        self.space = space
        self.promised: set[str] = set()
        self.pictures: list[Picture] = []
        self.syncs = 0
        self.renamed: list[StorePath] = []
        self._seeds = seeds
        self._watched = watched
        self._disk = Disk()
        for path, file in space.tree:
            self._disk.make_directories(path if file is None else path.parent)
            if file is not None:
                self._disk.above(path).names[path.name] = _File(file)
        for directory in self._disk._directories():
            directory.sync()
            for inode in directory.names.values():
                if isinstance(inode, _File):
                    inode.sync()

    def picture(self, moment: str) -> None:
        """Takes a picture, unless nothing happened since the last."""
        if not self._watched:
            return
        trees = [self._disk.left()]
        trees += [self._disk.left_by_chance(len(self.pictures) * 1000 + seed) for seed in range(self._seeds)]
        promised = frozenset(self.promised)
        last = self.pictures[-1] if self.pictures else None
        if last is None or (last.promised, last.trees) != (promised, trees):
            self.pictures.append(Picture(self.space.name, moment, promised, trees))

    def left(self) -> dict[str, bytes]:
        """The files that a power loss now would leave when everything goes that may go."""
        return files_of(self._disk.left())

    async def put(self, path: StorePath, data: bytes, *, durable: bool = False, **rest: Any) -> FileStatus:
        status = await self.inner.put(path, data, durable=durable, **rest)
        inode = _File(self.space.tree.file(path, "put"))
        if durable:
            inode.sync()
        self._disk.above(path).names[path.name] = inode
        self.picture(f"put {path}, not yet durable")
        if durable:
            self._sync(path.parent)
            self.picture(f"put {path}")
            if path.name in ("decision", "outcome", "_SUCCESS"):
                self.promised.add(path.name)
                self.picture(f"put {path} returned")
        return status

    async def open_writer(self, path: StorePath, *, durable: bool = False) -> FileWriter:
        writer = await self.inner.open_writer(path, durable=durable)
        inode = _File(self.space.tree.file(path, "open_writer"))
        self._disk.above(path).names[path.name] = inode
        return _PowerWriter(self, writer, path, inode, durable)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        made = await self.inner.make_directory(path, parents=parents)
        self._disk.make_directories(path)
        self.picture(f"make_directory {path}")
        return made

    async def rename_file(self, source: StorePath, destination: StorePath, **rest: Any) -> None:
        await self.inner.rename_file(source, destination, **rest)
        self._disk.move(source, destination)
        self.picture(f"rename_file {source} -> {destination}")

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        await self.inner.rename_directory(source, destination, known=known)
        self.renamed.append(destination)
        self._disk.move(source, destination)
        self.picture(f"rename_directory {source} -> {destination}")

    async def delete_file(self, path: StorePath) -> bool:
        deleted = await self.inner.delete_file(path)
        if deleted:
            if path.name == "decision":
                self.promised.add("cleaned up")
            del self._disk.above(path).names[path.name]
            self.picture(f"delete_file {path}")
        return deleted

    async def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        deleted = await self.inner.delete_directory(path, recursive=recursive)
        if deleted:
            pending: list[_Inode] = [self._disk.above(path).names.pop(path.name)]
            while pending:
                inode = pending.pop()
                if isinstance(inode, _Directory):
                    pending.extend(inode.names.values())
                    inode.names.clear()
            self.picture(f"delete_directory {path}")
        return deleted

    async def link_file(self, source: StorePath, destination: StorePath) -> None:
        await super().link_file(source, destination)
        self._disk.above(destination).names[destination.name] = self._disk.above(source).names[source.name]
        self.picture(f"link_file {source} -> {destination}")

    async def sync(self, path: StorePath, *, kind: Literal["file", "directory"]) -> None:
        await super().sync(path, kind=kind)
        if kind == "directory":
            self._sync(path)
        else:
            inode = self._disk.above(path).names[path.name]
            assert isinstance(inode, _File)
            inode.sync()
            self.syncs += 1
        self.picture(f"sync {path}")

    def _sync(self, directory: StorePath) -> None:
        self._disk.directory(directory).sync()
        self.syncs += 1


class _PowerWriter(FileWriter):
    def __init__(self, store: PowerStore, inner: FileWriter, path: StorePath, inode: _File, durable: bool) -> None:
        self._store, self._inner, self._path, self._inode, self._durable = store, inner, path, inode, durable

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.write(data)

    async def close(self) -> FileStatus:
        status = await self._inner.close()
        self._store.picture(f"close {self._path}, not yet durable")
        if self._durable:
            self._inode.sync()
            self._store._sync(self._path.parent)
            self._store.picture(f"close {self._path}")
        return status

    async def abort(self) -> None:
        await self._inner.abort()
        self._store._disk.above(self._path).names.pop(self._path.name, None)
