"""What the local store does, as plain blocking methods: one call of `Disk` is one store call."""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from committer.errors import (
    CommitterError,
    InvalidPathError,
    RecordError,
    StoreError,
    StoreExistsError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    UnsupportedError,
)
from committer.paths import StorePath
from committer.stores import _renames
from committer.stores._disk_calls import (
    GONE,
    LEADS_NOWHERE,
    PAGE,
    WORTH_A_LISTING,
    Buffer,
    Entries,
    Page,
    describe,
    directories_among,
    drop_orphan,
    drop_sidecar,
    finish_rename,
    first_link,
    flush,
    flush_directory,
    make_one_directory,
    may_hold_sidecars,
    no_entry,
    read_all,
    read_page,
    remove_tree,
    unlink,
    write_all,
)
from committer.stores._disk_errors import translate
from committer.stores.base import FileStatus

P = ParamSpec("P")
T = TypeVar("T")

_DELETE_ROUNDS: Final = 10
# Entries that are read of a directory to spare looks at each file that goes into it, at most: more would cost as much.
_ENTRIES_A_RENAME: Final = 8

_Numbered: TypeAlias = tuple[int, StorePath, StorePath]
# `list` is a method of `Disk`.
_Renames: TypeAlias = list[_Numbered]


def _typed(
    method: Callable[Concatenate[Disk, StorePath, P], T],
) -> Callable[Concatenate[Disk, StorePath, P], T]:
    """Turns the system's errors of a method into the store's."""

    @functools.wraps(method)
    def call(self: Disk, path: StorePath, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, path, *args, **kwargs)
        except CommitterError:
            raise
        except (OSError, ValueError) as error:
            destination = args[0] if args and isinstance(args[0], StorePath) else None
            raise translate(error, method.__name__, path, destination) from error

    return call


class Disk:
    """The local disk, and what was learnt about it.

    Attributes:
        exclusive_rename: Renames that fail when the target exists work, as far as is known.
        hard_links: Hard links work, as far as is known.
    """

    def __init__(self, *, exclusive_rename: bool) -> None:
        self.exclusive_rename = exclusive_rename and _renames.OFFERED
        self.hard_links = True

    @_typed
    def status(self, path: StorePath) -> FileStatus:
        """Looks at a path; of a link, at the link itself."""
        try:
            return describe(path, os.lstat(path.path))
        except OSError as error:
            if error.errno in LEADS_NOWHERE:
                raise no_entry() from error
            raise

    @_typed
    def list(self, directory: StorePath, entries: Entries | None = None) -> tuple[Page, Entries | None]:
        """Reads one page of a directory.

        Args:
            directory: The directory.
            entries: What the page before returned; None opens the directory.

        Returns:
            The page, and what the next one needs: None when this was the last. It holds the directory open.
        """
        if entries is None:
            try:
                entries = os.scandir(directory.path)
            except NotADirectoryError:
                if os.path.exists(directory.path):
                    raise
                raise no_entry() from None
        try:
            page = read_page(directory, entries)
        except BaseException:
            entries.close()
            raise
        if len(page) == PAGE:
            return page, entries
        entries.close()
        return page, None

    @_typed
    def read(self, path: StorePath, limit: int) -> bytes:
        """Reads a whole file."""
        try:
            # Without O_NONBLOCK a named pipe would hold the thread until somebody writes.
            handle = os.open(path.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except NotADirectoryError as error:
            raise no_entry() from error
        try:
            found = os.fstat(handle)
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            data = read_all(handle, found.st_size, limit + 1)
        finally:
            os.close(handle)
        if len(data) > limit:
            raise RecordError(f"a file is longer than the {limit} bytes it may have", operation="read", path=path)
        return data

    @_typed
    def put(self, path: StorePath, data: bytes, temporary: StorePath, exclusive: bool, durable: bool) -> FileStatus:
        """Writes `temporary` and renames it to `path`."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(temporary.path, flags, 0o666)
        try:
            try:
                write_all(handle, data, 0)
                if durable:
                    flush(handle)
            finally:
                os.close(handle)
            status = describe(path, os.stat(temporary.path))
            if exclusive:
                self._rename_exclusively(temporary.path, path.path)
            else:
                drop_sidecar(path.path)
                os.rename(temporary.path, path.path)
        except BaseException:
            unlink(temporary.path)
            raise
        if durable:
            flush_directory(os.path.dirname(path.path))
        return status

    @_typed
    def open_writer(self, path: StorePath) -> int:
        """Creates a file that is not there and returns its descriptor."""
        handle = os.open(path.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            drop_sidecar(path.path)
        except BaseException:
            os.close(handle)
            raise
        return handle

    @_typed
    def write(self, path: StorePath, handle: int, parts: Iterable[Buffer], offset: int) -> None:
        """Writes parts of the file at `path`, one after the other."""
        for part in parts:
            write_all(handle, part, offset)
            offset += len(part)

    @_typed
    def close(self, path: StorePath, handle: int, data: Buffer, offset: int, durable: bool) -> FileStatus:
        """Writes the last part of the file at `path`, closes it and looks at it."""
        try:
            write_all(handle, data, offset)
            if durable:
                flush(handle)
        finally:
            os.close(handle)
        status = describe(path, os.stat(path.path))
        if durable:
            flush_directory(os.path.dirname(path.path))
        return status

    @_typed
    def abort(self, path: StorePath, handle: int | None) -> None:
        """Closes a file, if it is open still, and deletes it."""
        if handle is not None:
            os.close(handle)
        unlink(path.path)

    @_typed
    def release(self, path: StorePath, handle: int) -> None:
        """Closes the file at `path` and leaves it."""
        os.close(handle)

    @_typed
    def make_directory(self, path: StorePath, parents: bool) -> bool:
        """Makes a directory, and its parents when told to."""
        try:
            return make_one_directory(path.path)
        except FileNotFoundError:
            if not parents:
                raise
        os.makedirs(os.path.dirname(path.path), exist_ok=True)
        return make_one_directory(path.path)

    @_typed
    def rename_file(self, source: StorePath, destination: StorePath, replace: bool) -> None:
        """Renames a file; not atomic where exclusive renames are missing: both names stand for a moment."""
        found = os.lstat(source.path)
        if stat.S_ISDIR(found.st_mode):
            raise StoreIsADirectoryError("a directory is there", operation="rename_file", path=source)
        if replace:
            drop_sidecar(destination.path)
            os.rename(source.path, destination.path)
            if found.st_nlink > 1:
                finish_rename(source.path, destination.path, found)
        else:
            self._rename_exclusively(source.path, destination.path)
        drop_sidecar(source.path)

    def rename_files(self, renames: Sequence[tuple[StorePath, StorePath]]) -> dict[int, StoreError]:
        """Renames many files, replacing nothing; the errors, by index.

        Where enough of them go into one directory that directory is listed, once before and once afterwards, in place
        of three looks at each file. Checksum sidecars of their sources stay where they are.
        """
        errors: dict[int, StoreError] = {}
        for directory, indexes in _by_directory(renames).items():
            if self.exclusive_rename and len(indexes) >= WORTH_A_LISTING:
                bare = may_hold_sidecars(directory, _ENTRIES_A_RENAME * len(indexes)) is False
            else:
                bare = False
            some: _Renames = [(index, *renames[index]) for index in indexes]
            if bare:
                some = self._rename_bare(directory, some, errors)
            for index, source, destination in some:
                try:
                    self.rename_file(source, destination, False)
                except StoreError as error:
                    errors[index] = error
        return errors

    def _rename_bare(self, directory: str, renames: _Renames, errors: dict[int, StoreError]) -> _Renames:
        """Renames files into one directory without sidecars; returns those that need another way."""
        rest: _Renames = []
        renamed: dict[str, _Numbered] = {}
        for rename in renames:
            index, source, destination = rename
            try:
                _renames.rename_no_replace(source.path, destination.path)
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in _renames.NOT_OFFERED:
                    rest.append(rename)
                    continue
                told = translate(error, "rename_file", source, destination)
                if not isinstance(told, StoreError):
                    raise told from error
                errors[index] = told
            else:
                renamed[destination.name] = rename
        # The system renames a directory as gladly as a file. That none was among them is seen afterwards, in one look
        # at them all.
        for name in directories_among(directory, renamed.keys(), _ENTRIES_A_RENAME * len(renamed)):
            index, source, destination = renamed[name]
            errors[index] = self._put_directory_back(source, destination)
        return rest

    def _put_directory_back(self, source: StorePath, destination: StorePath) -> StoreError:
        """Undoes the rename of what turned out to be a directory; says what the caller is to hear."""
        refused = StoreIsADirectoryError("a directory is there", operation="rename_file", path=source)
        try:
            _renames.rename_no_replace(destination.path, source.path)
        except OSError as error:
            refused.causes = (error,)
            refused.outcome = "unknown"
        return refused

    @_typed
    def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Renames a directory with all its content, replacing nothing."""
        if not stat.S_ISDIR(os.lstat(source.path).st_mode):
            raise StoreNotADirectoryError("a file is there", operation="rename_directory", path=source)
        if self.exclusive_rename:
            try:
                _renames.rename_no_replace(source.path, destination.path)
            except OSError as error:
                if error.errno not in _renames.NOT_OFFERED:
                    raise
                above = os.path.realpath(os.path.dirname(destination.path))
                if f"{above}/".startswith(f"{os.path.realpath(source.path)}/"):
                    raise InvalidPathError(
                        "a directory cannot move into itself", operation="rename_directory", path=destination
                    ) from error
                self.exclusive_rename = False
            else:
                return
        # rename(2) would take the place of an empty directory made meanwhile, and claiming the name first leaves an
        # empty directory behind when the process dies: neither is the rename that was asked for.
        raise UnsupportedError(
            "this file system cannot rename a directory without the risk of replacing one",
            operation="rename_directory",
            path=source,
        )

    @_typed
    def link_file(self, source: StorePath, destination: StorePath) -> None:
        """Gives a file a second name."""
        if stat.S_ISDIR(os.lstat(source.path).st_mode):
            raise StoreIsADirectoryError("a directory is there", operation="link_file", path=source)
        self._link(source.path, destination.path)

    @_typed
    def find_link(self, root: StorePath, directories: Iterable[str]) -> str | None:
        """Looks for a link on the way from `root` to each directory."""
        return first_link(root.path if root.path == "/" else f"{root.path}/", directories)

    @_typed
    def delete_file(self, path: StorePath) -> bool:
        """Deletes a file or a link."""
        try:
            if not os.path.isdir(path.path):
                drop_sidecar(path.path)
            os.unlink(path.path)
        except GONE:
            return False
        except PermissionError as error:
            # macOS says EPERM where Linux says EISDIR.
            if os.path.isdir(path.path) and not os.path.islink(path.path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from error
            raise
        return True

    @_typed
    def delete_directory(self, path: StorePath, recursive: bool) -> bool:
        """Deletes a directory; of a link to one only the link, and only with `recursive`."""
        try:
            found = os.lstat(path.path)
        except GONE:
            return False
        if not stat.S_ISDIR(found.st_mode):
            # What is deleted when it is empty is a directory that nobody needs; where a link leads others may live.
            if not (recursive and os.path.isdir(path.path)):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            return unlink(path.path)
        if recursive:
            return _delete_tree(path)
        try:
            os.rmdir(path.path)
        except FileNotFoundError:
            return False
        except FileExistsError as error:
            # POSIX allows EEXIST for a directory with children.
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)) from error
        return True

    @_typed
    def sync(self, path: StorePath, directory: bool) -> None:
        """Forces a file's data or a directory's entries to the disk."""
        if directory:
            flush_directory(path.path)
            return
        handle = os.open(path.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            flush(handle)
        finally:
            os.close(handle)

    @_typed
    def probe(self, directory: StorePath, nonce: str) -> None:
        """Tries in `directory` what a commit relies on, and forgets abilities that turn out missing."""
        names = [directory / f".committer-probe-{nonce}-{number}" for number in range(5)]
        first, second, third, fourth, fifth = names
        try:
            self.put(first, b"probe", third, False, False)
            written = self.status(first)
            self.rename_file(first, second, False)
            if self.status(second).identity != written.identity:
                raise UnsupportedError(
                    "this file system changes the inode or time of a file that is renamed",
                    operation="probe",
                    path=directory,
                )
            self.put(first, b"probe", third, False, False)
            _expect_refusal(lambda: self.rename_file(first, second, False), directory)
            if self.hard_links:
                try:
                    self.link_file(first, third)
                except UnsupportedError:
                    self.hard_links = False
            if self.exclusive_rename:
                self.make_directory(fourth, False)
                self.make_directory(fifth, False)
                try:
                    _expect_refusal(lambda: self.rename_directory(fourth, fifth), directory)
                except UnsupportedError:
                    if self.exclusive_rename:
                        raise
        finally:
            for name in (first, second, third):
                unlink(name.path)
            for name in (fourth, fifth):
                self.delete_directory(name, False)

    def _rename_exclusively(self, source: str, destination: str) -> None:
        if self.exclusive_rename:
            drop_orphan(destination)
            try:
                _renames.rename_no_replace(source, destination)
            except OSError as error:
                if error.errno not in _renames.NOT_OFFERED:
                    raise
                self.exclusive_rename = False
            else:
                return
        self._link(source, destination)
        # Not rename(2): between two names of one file it does nothing and tells nobody. A source that is gone was
        # unlinked by another that finishes the same rename.
        unlink(source)

    def _link(self, source: str, destination: str) -> None:
        drop_orphan(destination)
        try:
            os.link(source, destination, follow_symlinks=False)
        except PermissionError as error:
            if error.errno != errno.EPERM:
                raise
            # Linux says so for a file system without hard links, and where fs.protected_hardlinks forbids this one.
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP)) from error


def _by_directory(renames: Sequence[tuple[StorePath, StorePath]]) -> dict[str, list[int]]:
    """Indexes of renames by the directory they go into."""
    groups: dict[str, list[int]] = {}
    for index, (_source, destination) in enumerate(renames):
        groups.setdefault(destination.path.rpartition("/")[0], []).append(index)
    return groups


def _expect_refusal(rename: Callable[[], None], directory: StorePath) -> None:
    try:
        rename()
    except StoreExistsError:
        return
    raise UnsupportedError(
        "this file system replaces a file although it was told not to", operation="probe", path=directory
    )


def _delete_tree(path: StorePath) -> bool:
    for _ in range(_DELETE_ROUNDS):
        try:
            remove_tree(path.path)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
        else:
            return True
    raise StoreNotEmptyError(
        "others keep adding to the directory", operation="delete_directory", path=path, outcome="partial"
    )
