"""Files, blocks and uploads of the memory store; each call is atomic."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import md5
from typing import Final

import msgspec

from committer.errors import (
    ConfigurationError,
    InvalidPathError,
    StoreConflictError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreNotFoundError,
    StorePartsError,
    StorePreconditionError,
    StoreUploadNotFoundError,
)
from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus
from committer.stores.uploads import PendingUpload, UncommittedBlock, UploadPart, check_length, check_part, check_stamp


class File(msgspec.Struct, gc=False):
    """Content of a file, shared by all its names."""

    data: bytes
    identity: str | None
    modified: float
    stamp: str | None = None
    version: str | None = None


class _Entry(msgspec.Struct):
    # The path in its first spelling; the key may be folded. A directory has no file.
    path: StorePath
    file: File | None


class Tree:
    """Tree of files and directories, with the rules of its capabilities. `version` counts changes."""

    def __init__(self, capabilities: Capabilities, clock: Callable[[], float]) -> None:
        self.capabilities = capabilities
        self.on_put: Callable[[StorePath], None] | None = None
        self.version: int = 0
        self._clock = clock
        self._changes = 0
        self._entries: dict[str, _Entry] = {}
        # Sorted, so that a directory's content is one slice.
        self._keys: list[str] = []

    def __iter__(self) -> Iterator[tuple[StorePath, File | None]]:
        """Iterates over every path in order, with its file, or None for a directory."""
        return ((self._entries[key].path, self._entries[key].file) for key in self._keys)

    def new_file(self, data: bytes, *, identity: str | None = None, stamp: str | None = None) -> File:
        """Creates the content of a file with a new identity: with multipart uploads S3's etag of the content."""
        self._changes += 1
        if not self.capabilities.identity:
            identity = None
        elif identity is None:
            identity = etag([data]) if self.capabilities.multipart else f"v{self._changes}"
        return File(data, identity, self._clock(), stamp, self._version())

    def _version(self) -> str | None:
        return str(self._changes) if self.capabilities.versions else None

    def status(self, path: StorePath) -> FileStatus:
        """Returns the status of a path."""
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
        """Returns the file at a path; raises store errors."""
        entry = self._find(path, operation)
        if entry is not None and entry.file is not None:
            return entry.file
        if self._is_directory(path):
            raise StoreIsADirectoryError("a directory is there", operation=operation, path=path)
        raise StoreNotFoundError("nothing is there", operation=operation, path=path)

    def find(self, path: StorePath, operation: str) -> File | None:
        """Returns the file at a path, or None."""
        entry = self._find(path, operation)
        return entry.file if entry is not None else None

    def check_free(self, path: StorePath, operation: str, *, replace: bool) -> None:
        """Raises the errors of a `put` with these arguments, except for a parent that is created implicitly."""
        entry = self._find(path, operation)
        if self.capabilities.directories:
            self._check_parent(path, operation, made_up=operation in ("put", "open_writer") and self._makes_parents)
            if self._is_directory(path) and replace:
                raise StoreIsADirectoryError("a directory is there", operation=operation, path=path)
        if entry is not None and not replace:
            raise StoreExistsError("something exists there already", operation=operation, path=path)

    def fill(self, file: File, content: File) -> None:
        """Replaces the content of a file under all its names."""
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
        """Puts a file over one with the given identity."""
        standing = self.find(path, "put")
        if standing is None or standing.identity != identity:
            raise StorePreconditionError("another file is there, or none", operation="put", path=path)
        self.put(path, file, "put", replace=True)

    def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        """Creates a directory."""
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
                    "a file exists where a directory must be", operation="make_directory", path=path
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
            # Object stores move a file by a new object with the same content and metadata.
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
        self.check_names(path, "delete_file")
        if self.capabilities.directories and self._is_directory(path):
            raise StoreIsADirectoryError("a directory is there", operation="delete_file", path=path)
        return self._remove(self._key(path)) is not None

    def delete_file_if(self, path: StorePath, identity: str) -> bool:
        """Deletes a file with the given identity."""
        file = self.find(path, "delete_file_if")
        if file is not None and file.identity != identity:
            raise StorePreconditionError("another file is there", operation="delete_file_if", path=path)
        return self.delete_file(path)

    def delete_files(self, files: Mapping[StorePath, str | None]) -> dict[StorePath, StoreError]:
        """Deletes files, those with an identity on its condition; returns the refused ones."""
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
        """Deletes a directory; empties the root."""
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
        """Refuses an invalid name."""
        text = path.path
        if text in self._entries:
            # Checked when it was put.
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
                raise StoreNotADirectoryError("a file exists where a directory must be", operation=operation, path=path)
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
    """Returns the status of a file as in a listing: without its stamp."""
    return FileStatus(path, False, len(file.data), file.modified, file.identity, version=file.version)


def etag(parts: Sequence[bytes], *, parted: bool = False) -> str:
    """Returns S3's etag: the MD5 of a whole file; of parts, the MD5 of their MD5s and their number."""
    digests = [md5(part, usedforsecurity=False) for part in parts]
    if not parted:
        return digests[0].hexdigest()
    return f"{md5(b''.join(one.digest() for one in digests), usedforsecurity=False).hexdigest()}-{len(parts)}"


def _after(key: str) -> str:
    # The least text after all that starts with the key and a slash.
    return f"{key}0"


_WEEK_S: Final = 7 * 24 * 3600.0
_MAX_ID_BYTES: Final = 64
_MAX_UNCOMMITTED: Final = 100_000


class _Waiting(msgspec.Struct):
    blocks: dict[str, bytes]
    last_put: float


class Blocks:
    """Uncommitted blocks by name, with the rules of Azure's block blobs.

    A put of a file drops the blocks of its name. A delete keeps them: the service's behaviour is not documented, and
    this is the harder case.
    """

    def __init__(self, tree: Tree, clock: Callable[[], float]) -> None:
        self._tree = tree
        self._clock = clock
        self._waiting: dict[str, _Waiting] = {}
        tree.on_put = self._drop

    def clear(self) -> None:
        """Drops every block."""
        self._waiting.clear()

    def put(self, path: StorePath, block_id: str, data: bytes) -> None:
        """Stores a block."""
        self._tree.check_free(path, "put_block", replace=True)
        if not (0 < len(block_id) <= _MAX_ID_BYTES and block_id.isascii()):
            raise ConfigurationError(f"no block can have the id {block_id!r}", operation="put_block", path=path)
        if not data:
            raise ConfigurationError("a block cannot be empty", operation="put_block", path=path)
        check_length(len(data), self._tree.capabilities.max_part_bytes, "put_block", path)
        blocks = self.uncommitted(path)
        if blocks and len(next(iter(blocks))) != len(block_id):
            raise StorePartsError("blocks with ids of another length wait there", operation="put_block", path=path)
        if len(blocks) >= _MAX_UNCOMMITTED and block_id not in blocks:
            raise StorePartsError("too many blocks wait there", operation="put_block", path=path)
        blocks[block_id] = data
        self._waiting[path.path] = _Waiting(blocks, self._clock())

    def commit(
        self, path: StorePath, block_ids: Sequence[str], *, stamp: str, exclusive: bool, identity: str | None
    ) -> str | None:
        """Makes a file of blocks."""
        check_stamp(stamp, "put_block_list", path)
        if exclusive and identity is not None:
            raise ConfigurationError("two conditions that exclude each other", operation="put_block_list", path=path)
        standing = self._tree.find(path, "put_block_list")
        if identity is not None and (standing is None or standing.identity != identity):
            raise StorePreconditionError("another file, or none, is there", operation="put_block_list", path=path)
        most = self._tree.capabilities.max_parts
        if most is not None and len(block_ids) > most:
            raise StorePartsError(f"more than {most} blocks", operation="put_block_list", path=path)
        blocks = self.uncommitted(path)
        missing = next((block_id for block_id in block_ids if block_id not in blocks), None)
        if missing is not None:
            raise StorePartsError(f"no block {missing!r} waits there", operation="put_block_list", path=path)
        file = self._tree.new_file(b"".join(blocks[block_id] for block_id in block_ids), stamp=stamp)
        self._tree.put(path, file, "put_block_list", replace=not exclusive)
        return file.identity

    def uncommitted(self, path: StorePath) -> dict[str, bytes]:
        """Returns the uncommitted blocks of a name."""
        waiting = self._waiting.get(path.path)
        if waiting is not None and self._clock() - waiting.last_put >= _WEEK_S:
            del self._waiting[path.path]
            waiting = None
        return waiting.blocks if waiting is not None else {}

    def listed(self, path: StorePath) -> list[UncommittedBlock]:
        """Returns the uncommitted blocks of a name as a store lists them."""
        return [UncommittedBlock(block_id, len(data)) for block_id, data in self.uncommitted(path).items()]

    def _drop(self, path: StorePath) -> None:
        self._waiting.pop(path.path, None)


class _Upload(msgspec.Struct):
    status: PendingUpload
    stamp: str
    parts: dict[int, bytes]


class Uploads:
    """Uploads by id, with S3's rules.

    A repeated completion succeeds without effect if `answers_again`, else it finds no upload. S3 does either,
    depending on the time since.
    """

    def __init__(self, tree: Tree, clock: Callable[[], float]) -> None:
        self.answers_again = False
        self._tree = tree
        self._clock = clock
        self._created = 0
        self._pending: dict[str, _Upload] = {}
        self._completed: dict[str, tuple[StorePath, str | None]] = {}

    def __iter__(self) -> Iterator[PendingUpload]:
        """Iterates over the pending uploads in the order of creation."""
        return (upload.status for upload in self._pending.values())

    def clear(self) -> None:
        """Drops every upload."""
        self._pending.clear()
        self._completed.clear()

    def create(self, path: StorePath, stamp: str) -> str:
        """Begins an upload."""
        check_stamp(stamp, "create_upload", path)
        self._tree.check_free(path, "create_upload", replace=True)
        self._created += 1
        upload_id = f"upload-{self._created}"
        self._pending[upload_id] = _Upload(PendingUpload(path, upload_id, self._clock(), "memory"), stamp, {})
        return upload_id

    def put_part(self, path: StorePath, upload_id: str, number: int, data: bytes) -> UploadPart:
        """Stores a part."""
        can = self._tree.capabilities
        check_part(number, len(data), can.max_parts, can.max_part_bytes, "put_part", path)
        upload = self._find(path, upload_id, "put_part")
        upload.parts[number] = data
        return _part(number, data)

    def complete(
        self, path: StorePath, upload_id: str, parts: Sequence[UploadPart], *, exclusive: bool, before: File | None
    ) -> str | None:
        """Makes a file of an upload; a file other than the one `before` the request is a conflicting change."""
        if self.answers_again and not exclusive and self._completed.get(upload_id, (None, None))[0] == path:
            return self._completed[upload_id][1]
        upload = self._find(path, upload_id, "complete_upload")
        contents = self._contents(upload, parts)
        if exclusive and self._tree.find(path, "complete_upload") is not before:
            del self._pending[upload_id]
            raise StoreConflictError("another change of it was under way", operation="complete_upload", path=path)
        file = self._tree.new_file(b"".join(contents), identity=etag(contents, parted=True), stamp=upload.stamp)
        self._tree.put(path, file, "complete_upload", replace=not exclusive)
        del self._pending[upload_id]
        self._completed[upload_id] = path, file.identity
        return file.identity

    def abort(self, path: StorePath, upload_id: str) -> bool:
        """Drops an upload and returns whether it existed."""
        try:
            self._find(path, upload_id, "abort_upload")
        except StoreUploadNotFoundError:
            return False
        del self._pending[upload_id]
        return True

    def below(self, directory: StorePath) -> list[PendingUpload]:
        """Returns the uploads below a directory."""
        prefix = f"{directory.path.rstrip('/')}/"
        return [status for status in self if status.path.path.startswith(prefix)]

    def parts(self, path: StorePath, upload_id: str) -> list[UploadPart]:
        """Returns the parts of an upload."""
        return [_part(*part) for part in sorted(self._find(path, upload_id, "list_parts").parts.items())]

    def _find(self, path: StorePath, upload_id: str, operation: str) -> _Upload:
        upload = self._pending.get(upload_id)
        if upload is None or upload.status.path != path:
            raise StoreUploadNotFoundError(
                "no such upload is pending: it was completed or aborted", operation=operation, path=path
            )
        return upload

    def _contents(self, upload: _Upload, parts: Sequence[UploadPart]) -> list[bytes]:
        wrong = next(self._complaints(upload, parts), None)
        if wrong is not None:
            raise StorePartsError(wrong, operation="complete_upload", path=upload.status.path)
        return [upload.parts[part.number] for part in parts]

    def _complaints(self, upload: _Upload, parts: Sequence[UploadPart]) -> Iterator[str]:
        if not parts:
            yield "no parts are named"
        last = 0
        for part in parts:
            data = upload.parts.get(part.number)
            if part.number <= last:
                yield f"part {part.number} comes behind part {last}"
            if data is None or etag([data]) != part.etag:
                yield f"part {part.number} is not there, or has another etag"
            elif part is not parts[-1] and len(data) < self._tree.capabilities.min_part_bytes:
                yield f"part {part.number} is too short"
            last = part.number


def _part(number: int, data: bytes) -> UploadPart:
    return UploadPart(number, etag([data]), len(data))
