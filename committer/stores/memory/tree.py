"""The files behind the memory store: plain and synchronous, each call one indivisible step."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import md5

import msgspec

from committer.errors import (
    ConfigurationError,
    InvalidPathError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StorePreconditionError,
)
from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus


class File(msgspec.Struct, gc=False):
    """The content of a file; two names of one file share it."""

    data: bytes
    identity: str | None
    modified: float
    stamp: str | None = None
    version: str | None = None


class _Entry(msgspec.Struct):
    # The path as it was first spelled; what it is found by may be folded. No file means a directory.
    path: StorePath
    file: File | None


class Tree:
    """Files and directories by path, with the rules that the capabilities give.

    Args:
        capabilities: What is folded, limited and identified, and whether directories are real.
        clock: Gives the time of a change, in seconds since the epoch.

    Attributes:
        on_put: Called when a file was put.
        version: Counts changes: what was seen at one number is there as long as it stays.
    """

    def __init__(self, capabilities: Capabilities, clock: Callable[[], float]) -> None:
        self.capabilities = capabilities
        self.on_put: Callable[[StorePath], None] | None = None
        self.version: int = 0
        self._clock = clock
        self._changes = 0
        self._entries: dict[str, _Entry] = {}
        # Sorted, so that what lies below a directory is one slice.
        self._keys: list[str] = []

    def __iter__(self) -> Iterator[tuple[StorePath, File | None]]:
        """Every path in order, with its file or, for a directory, None."""
        return ((self._entries[key].path, self._entries[key].file) for key in self._keys)

    def new_file(self, data: bytes, *, identity: str | None = None, stamp: str | None = None) -> File:
        """Makes the content of a file, with an identity that no other has.

        Where there are multipart uploads it is S3's etag, the same for the same content.
        """
        self._changes += 1
        if not self.capabilities.identity:
            identity = None
        elif identity is None:
            identity = etag([data]) if self.capabilities.multipart else f"v{self._changes}"
        return File(data, identity, self._clock(), stamp, self._version())

    def _version(self) -> str | None:
        return str(self._changes) if self.capabilities.versions else None

    def status(self, path: StorePath) -> FileStatus:
        """Looks at a path."""
        entry = self._find(path, "status")
        if entry is not None and entry.file is not None:
            told = describe(path, entry.file)
            return told if entry.file.stamp is None else msgspec.structs.replace(told, stamp=entry.file.stamp)
        if entry is None and not self._is_directory(path):
            raise StoreNotFoundError("nothing is there", operation="status", path=path)
        return FileStatus(path, True, 0)

    def children(self, directory: StorePath) -> list[FileStatus]:
        """Lists the direct children."""
        if not self._is_directory(directory):
            if self._find(directory, "list") is None:
                raise StoreNotFoundError("nothing is there", operation="list", path=directory)
            raise StoreNotADirectoryError("a file is there", operation="list", path=directory)
        prefix = self._prefix(directory)
        depth = prefix.count("/")
        position, end = self._below(directory)
        found: list[FileStatus] = []
        while position < end:
            key = self._keys[position]
            entry = self._entries[key]
            name = entry.path.path.split("/")[depth]
            slash = key.find("/", len(prefix))
            if slash < 0:
                path = directory / name
                found.append(FileStatus(path, True, 0) if entry.file is None else describe(path, entry.file))
                position += 1
            else:
                if not self.capabilities.directories:
                    found.append(FileStatus(directory / name, True, 0))
                position = bisect_left(self._keys, _after(key[:slash]))
        return found

    def below(self, directory: StorePath) -> list[FileStatus]:
        """Lists everything below a directory, at any depth."""
        found = self.children(directory)
        for status in found:
            if status.is_directory:
                found += self.children(status.path)
        return found

    def file(self, path: StorePath, operation: str) -> File:
        """The file at a path."""
        entry = self._find(path, operation)
        if entry is not None and entry.file is not None:
            return entry.file
        if self._is_directory(path):
            raise StoreIsADirectoryError("a directory is there", operation=operation, path=path)
        raise StoreNotFoundError("nothing is there", operation=operation, path=path)

    def find(self, path: StorePath, operation: str) -> File | None:
        """The file at a path, if there is one."""
        entry = self._find(path, operation)
        return entry.file if entry is not None else None

    def check_free(self, path: StorePath, operation: str, *, replace: bool) -> None:
        """Raises what a `put` with these arguments would, but for a parent that the store makes up."""
        entry = self._find(path, operation)
        if self.capabilities.directories:
            self._check_parent(path, operation, made_up=operation in ("put", "open_writer") and self._makes_parents)
            if self._is_directory(path) and replace:
                raise StoreIsADirectoryError("a directory is there", operation=operation, path=path)
        if entry is not None and not replace:
            raise StoreExistsError("something stands there already", operation=operation, path=path)

    def fill(self, file: File, content: File) -> None:
        """Gives a file that stands there other content, under all its names."""
        self.version += 1
        file.data, file.identity, file.modified = content.data, content.identity, content.modified
        file.version = content.version

    def put(self, path: StorePath, file: File, operation: str, *, replace: bool) -> None:
        """Puts a file under a name."""
        self.check_free(path, operation, replace=replace)
        if self._makes_parents:
            self.make_directory(path.parent, parents=True)
        key = self._key(path)
        if key in self._entries:
            self.version += 1
            self._entries[key].file = file
        else:
            self._add(key, _Entry(path, file))
        if self.on_put is not None:
            self.on_put(path)

    def replace(self, path: StorePath, file: File, identity: str | None) -> None:
        """Puts a file over one that is still the given one."""
        standing = self.find(path, "put")
        if standing is None or standing.identity != identity:
            raise StorePreconditionError("another file is there, or none", operation="put", path=path)
        self.put(path, file, "put", replace=True)

    def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Makes a directory."""
        entry = self._find(path, "make_directory")
        if not self.capabilities.directories:
            return True
        if self._is_directory(path):
            return False
        if entry is not None:
            raise StoreExistsError("a file is there", operation="make_directory", path=path)
        if parents or self._makes_parents:
            self._make_parents(path)
        self._check_parent(path, "make_directory")
        self._add(self._key(path), _Entry(path, None))
        return True

    def _make_parents(self, path: StorePath) -> None:
        missing: list[StorePath] = []
        above = path.parent
        while not self._is_directory(above):
            if self._find(above, "make_directory") is not None:
                raise StoreNotADirectoryError(
                    "a file stands where a directory must be", operation="make_directory", path=path
                )
            missing.append(above)
            above = above.parent
        while missing:
            made = missing.pop()
            self._add(self._key(made), _Entry(made, None))

    def rename_file(self, source: StorePath, destination: StorePath, *, replace: bool, identity: str | None) -> None:
        """Renames a file."""
        file = self.file(source, "rename_file")
        if self.capabilities.conditional_rename and identity is not None and file.identity != identity:
            raise StorePreconditionError("the source is another file", operation="rename_file", path=source)
        self.check_free(destination, "rename_file", replace=replace)
        if not self.capabilities.identity_through_rename:
            file = self.new_file(file.data, stamp=file.stamp)
        elif not self.capabilities.directories:
            # A new object of the same content and metadata, as where objects are moved.
            self._changes += 1
            file = msgspec.structs.replace(file, version=self._version())
        self._remove(self._key(source))
        self._remove(self._key(destination))
        self._add(self._key(destination), _Entry(destination, file))

    def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Moves a directory with all its content."""
        if not self._is_directory(source):
            self.file(source, "rename_directory")
            raise StoreNotADirectoryError("a file is there", operation="rename_directory", path=source)
        if self._prefix(destination).startswith(self._prefix(source)) and self._key(source) != self._key(destination):
            raise InvalidPathError(
                "a directory cannot move into itself", operation="rename_directory", path=destination
            )
        self.check_free(destination, "rename_directory", replace=False)
        if self._is_directory(destination):
            raise StoreExistsError("a directory is there", operation="rename_directory", path=destination)
        start, end = self._below(source)
        moved = [self._key(source), *self._keys[start:end]]
        cut = len(source.path)
        for key in moved:
            entry = self._remove(key)
            if entry is not None:
                path = StorePath(destination.scheme, destination.authority, destination.path + entry.path.path[cut:])
                self._add(self._key(path), _Entry(path, entry.file))

    def delete_file(self, path: StorePath) -> bool:
        """Deletes a file."""
        entry = self._find(path, "delete_file")
        if entry is None:
            if self.capabilities.directories and self._is_directory(path):
                raise StoreIsADirectoryError("a directory is there", operation="delete_file", path=path)
            return False
        if entry.file is None:
            raise StoreIsADirectoryError("a directory is there", operation="delete_file", path=path)
        self._remove(self._key(path))
        return True

    def delete_file_if(self, path: StorePath, identity: str) -> bool:
        """Deletes a file that is still the given one."""
        file = self.find(path, "delete_file_if")
        if file is not None and file.identity != identity:
            raise StorePreconditionError("another file is there", operation="delete_file_if", path=path)
        return self.delete_file(path)

    def delete_files(self, files: Mapping[StorePath, str | None]) -> dict[StorePath, StoreError]:
        """Deletes files in one step: each that is still the given one, or whatever has a name of no identity.

        Returns:
            Those that are other files.
        """
        most = self.capabilities.max_batch_delete
        if most is not None and len(files) > most:
            raise ConfigurationError(f"{len(files)} names: a call takes {most}", operation="delete_files")
        for path in files:
            self.check_names(path, "delete_files")
        failed: dict[StorePath, StoreError] = {}
        for path, identity in files.items():
            try:
                if identity is None:
                    self.delete_file(path)
                else:
                    self.delete_file_if(path, identity)
            except StorePreconditionError as error:
                failed[path] = error
        return failed

    def delete_directory(self, path: StorePath, *, recursive: bool) -> bool:
        """Deletes a directory; the root is emptied."""
        entry = self._find(path, "delete_directory")
        if not self._is_directory(path):
            if entry is None:
                return False
            raise StoreNotADirectoryError("a file is there", operation="delete_directory", path=path)
        start, end = self._below(path)
        if start < end and not recursive:
            raise StoreNotEmptyError("the directory has children", operation="delete_directory", path=path)
        self.version += 1
        for key in self._keys[start:end]:
            del self._entries[key]
        del self._keys[start:end]
        if entry is not None and entry.file is None:
            self._remove(self._key(path))
        return True

    def check_names(self, path: StorePath, operation: str) -> None:
        """Refuses a name that no file can have."""
        text = path.path
        if text in self._entries:
            # It was looked at when it was put there.
            return
        longest = self.capabilities.max_name_bytes
        if "\0" in text or not text.startswith("/"):
            raise InvalidPathError("no file can have this name", operation=operation, path=ascii(str(path)))
        try:
            size = len(text.encode())
            too_long = size > (self.capabilities.max_path_bytes or size)
            if longest is not None and size > longest:
                too_long |= any(len(segment.encode()) > longest for segment in text.split("/"))
        except UnicodeEncodeError as error:
            raise InvalidPathError("a name is not valid Unicode", operation=operation, path=ascii(str(path))) from error
        if too_long:
            raise InvalidPathError("a name or path is too long", operation=operation, path=path)
        if self.capabilities.forbids_trailing_period and f"{text}/".find("./") >= 0:
            raise InvalidPathError("a name ends in a period", operation=operation, path=path)

    def _find(self, path: StorePath, operation: str) -> _Entry | None:
        self.check_names(path, operation)
        return self._entries.get(self._key(path))

    def _is_directory(self, path: StorePath) -> bool:
        if self.capabilities.directories:
            entry = self._entries.get(self._key(path))
            return path.path == "/" or (entry is not None and entry.file is None)
        start, end = self._below(path)
        return start < end

    @property
    def _makes_parents(self) -> bool:
        return self.capabilities.directories and self.capabilities.implicit_parents

    def _check_parent(self, path: StorePath, operation: str, *, made_up: bool = False) -> None:
        above = path.parent
        if self._is_directory(above):
            return
        while above.path != "/":
            if self._key(above) in self._entries and not self._is_directory(above):
                raise StoreNotADirectoryError("a file stands where a directory must be", operation=operation, path=path)
            above = above.parent
        if not made_up:
            raise StoreNotFoundError("its directory is missing", operation=operation, path=path)

    def _key(self, path: StorePath) -> str:
        text = path.path
        if text.isascii():
            return text.lower() if self.capabilities.case_folding else text
        if self.capabilities.unicode_folding:
            text = unicodedata.normalize("NFC", text)
        if self.capabilities.case_folding:
            text = text.casefold()
        return unicodedata.normalize("NFC", text) if self.capabilities.unicode_folding else text

    def _prefix(self, directory: StorePath) -> str:
        key = self._key(directory)
        return key if key == "/" else f"{key}/"

    def _below(self, directory: StorePath) -> tuple[int, int]:
        prefix = self._prefix(directory)
        return bisect_left(self._keys, prefix), bisect_left(self._keys, _after(prefix[:-1]))

    def _add(self, key: str, entry: _Entry) -> None:
        self.version += 1
        self._entries[key] = entry
        insort(self._keys, key)

    def _remove(self, key: str) -> _Entry | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.version += 1
            del self._keys[bisect_left(self._keys, key)]
        return entry


def describe(path: StorePath, file: File) -> FileStatus:
    """The status of a file, as a listing tells it: without its stamp."""
    return FileStatus(path, False, len(file.data), file.modified, file.identity, version=file.version)


def etag(parts: Sequence[bytes], *, parted: bool = False) -> str:
    """S3's etag: of a file put whole its MD5; of one made of parts the MD5 of theirs, and how many they are."""
    digests = [md5(part, usedforsecurity=False) for part in parts]
    if not parted:
        return digests[0].hexdigest()
    return f"{md5(b''.join(one.digest() for one in digests), usedforsecurity=False).hexdigest()}-{len(parts)}"


def _after(key: str) -> str:
    # The first text behind everything that starts with the key and a slash.
    return f"{key}0"
