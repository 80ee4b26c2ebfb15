"""What the local store does, as plain blocking methods: one call of `Disk` is one store call."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Concatenate, Final, ParamSpec, TypeAlias, TypeVar

from committer.errors import (
    CommitterError,
    InvalidPathError,
    RecordError,
    StoreCrossDeviceError,
    StoreError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreNotEmptyError,
    StoreOutcomeUnknownError,
    UnsupportedError,
)
from committer.paths import StorePath, working_part
from committer.stores.base import FileStatus
from committer.stores.local import kernel_rename
from committer.stores.local.calls import (
    GONE,
    LEADS_NOWHERE,
    PAGE,
    WORTH_A_LISTING,
    Buffer,
    Entries,
    Page,
    describe,
    drop_orphan,
    drop_sidecar,
    flush,
    flush_directory,
    look_at_file,
    make_directories,
    make_one_directory,
    may_hold_sidecars,
    no_entry,
    open_file,
    open_to_read,
    others_among,
    read_all,
    read_page,
    rename,
    rename_no_replace,
    take_link_back,
    unlink,
    write_all,
)
from committer.stores.local.errors import out_of_memory, translate
from committer.stores.local.links import drop_linked_name, private_directory
from committer.stores.local.places import Held, Place, open_directory, refuse_link
from committer.stores.local.rights import refusals
from committer.stores.local.trees import MountedBelowError, first_link, remove_tree

P = ParamSpec("P")
T = TypeVar("T")

_DELETE_ROUNDS: Final = 10
_CHANGED_MEANWHILE: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR})
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
        except CommitterError as error:
            error.operation = error.operation or method.__name__
            raise
        except MemoryError as error:
            raise out_of_memory(method.__name__, path) from error
        except (OSError, ValueError) as error:
            destination = args[0] if args and isinstance(args[0], StorePath) else None
            raise translate(error, method.__name__, path, destination) from error

    return call


class Disk:
    """The local disk, and what was learnt about it.

    Attributes:
        exclusive_rename: Renames that fail when the target exists work, as far as is known.
        hard_links: Hard links work, as far as is known.
        token: Drawn at random, for names that no other process uses; empty until it is needed.
    """

    def __init__(self, *, exclusive_rename: bool) -> None:
        self.exclusive_rename: bool = exclusive_rename and kernel_rename.OFFERED
        self.hard_links = True
        self.token = ""
        self._linked = False
        self._numbers = itertools.count()

    @_typed
    def status(self, path: StorePath) -> FileStatus:
        """Looks at a path; of a link, at the link itself."""
        with Held() as held:
            try:
                place = held.place(path.path)
                found = place.look()
                refuses = refusals(path.path, found, None, links=not self.exclusive_rename)
                return describe(path, found, place, refuses)
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
                entries = Entries(directory.path)
            except NotADirectoryError:
                if os.path.exists(directory.path):
                    raise
                raise no_entry() from None
        try:
            page = read_page(directory, entries, links=not self.exclusive_rename)
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
            handle = open_to_read(path)
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
        with Held() as held:
            first, place = held.place(temporary.path), held.place(path.path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = open_file(first, flags, temporary)
            try:
                try:
                    write_all(handle, data, 0)
                    if durable:
                        flush(handle)
                finally:
                    os.close(handle)
                status = describe(path, look_at_file(first, temporary), first)
                # By its whole name: where the directory got another name since, what it holds is frozen. That name is
                # this call's own, so nothing has it where a link in the place of the directory would lead.
                named = Place(temporary.path, None, guarded=False)
                if exclusive:
                    self._rename_exclusively(named, place)
                else:
                    drop_sidecar(place)
                    rename(named, place)
                if first.guarded and not place.guarded:
                    take_link_back(place, path)
            except BaseException:
                # What cannot be deleted goes with its job; the error to see is the one that brought us here.
                with suppress(OSError):
                    unlink(first)
                raise
        if durable:
            self._force_name(path)
        return status

    def _force_name(self, path: StorePath) -> None:
        """Forces the name of a file that took its place a moment ago to the disk."""
        try:
            flush_directory(os.path.dirname(path.path))
        except OSError as error:
            raise StoreOutcomeUnknownError(
                f"the file stands, but could not be forced to the disk: {error.strerror or error}",
                operation="put",
                path=path,
                next_step="see that the disk works, and has room; without durability='fsync' nothing is forced to it",
            ) from error

    @_typed
    def open_writer(self, path: StorePath) -> int:
        """Creates a file that is not there and returns its descriptor."""
        with Held() as held:
            place = held.place(path.path)
            handle = os.open(place.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=place.at)
            try:
                drop_sidecar(place)
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
        with Held() as held:
            place = held.place(path.path)
            status = describe(path, look_at_file(place, path), place)
        if durable:
            flush_directory(os.path.dirname(path.path))
        return status

    @_typed
    def abort(self, path: StorePath, handle: int | None) -> None:
        """Closes a file, if it is open still, and deletes it."""
        if handle is not None:
            os.close(handle)
        with suppress(*GONE), Held() as held:
            unlink(held.place(path.path))

    @_typed
    def release(self, path: StorePath, handle: int) -> None:
        """Closes the file at `path` and leaves it."""
        os.close(handle)

    @_typed
    def make_directory(self, path: StorePath, parents: bool) -> bool:
        """Makes a directory, and its parents when told to."""
        with Held() as held:
            try:
                return make_one_directory(held.place(path.path), path.path)
            except FileNotFoundError:
                if not parents:
                    raise
            make_directories(held, path.path.rpartition("/")[0])
            return make_one_directory(held.place(path.path), path.path)

    @_typed
    def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        replace: bool,
        identity: str | None = None,
        batch: Held | None = None,
    ) -> None:
        """Renames a file; not atomic where exclusive renames are missing: both names stand for a moment.

        In a batch no other call uses the name of the source, before or after, and no link is renamed. Else a link that
        stands in a job's directory is renamed only when it is the one meant.
        """
        if batch is not None:
            first, place = _ends(batch, source, destination)
        else:
            with Held() as held:
                first, place = _ends(held, source, destination)
        found = first.look()
        if stat.S_ISLNK(found.st_mode) and (
            batch is not None or (first.guarded and identity not in (None, f"{found.st_ino}:{found.st_mtime_ns}"))
        ):
            raise refuse_link(source.path)
        if stat.S_ISDIR(found.st_mode):
            raise StoreIsADirectoryError("a directory is there", operation="rename_file", path=source)
        if replace:
            drop_sidecar(place)
            rename(first, place)
            if found.st_nlink > 1:
                # rename(2) does nothing when both are names of one file.
                self._drop_linked_name(first, place)
        elif batch is not None:
            self._rename_exclusively(first, place)
        elif self._rename_or_link(first, place):
            self._drop_linked_name(first, place)
        drop_orphan(first)

    def rename_files(self, renames: Sequence[tuple[StorePath, StorePath]]) -> dict[int, StoreError]:
        """Renames many files, replacing nothing; the errors, by index.

        Where enough of them go into one directory that directory is listed, once before and once afterwards, in place
        of three looks at each file. Checksum sidecars of their sources stay where they are.
        """
        errors: dict[int, StoreError] = {}
        with Held() as batch:
            self._rename_batch(batch, renames, errors)
        return errors

    def _rename_batch(
        self, batch: Held, renames: Sequence[tuple[StorePath, StorePath]], errors: dict[int, StoreError]
    ) -> None:
        for directory, indexes in _by_directory(renames).items():
            if self.exclusive_rename and len(indexes) >= WORTH_A_LISTING:
                bare = may_hold_sidecars(directory, _ENTRIES_A_RENAME * len(indexes)) is False
            else:
                bare = False
            some: _Renames = [(index, *renames[index]) for index in indexes]
            if bare:
                some = self._rename_bare(batch, directory, some, errors)
            for index, source, destination in some:
                try:
                    self.rename_file(source, destination, False, None, batch)
                except StoreError as error:
                    errors[index] = error

    def _rename_bare(self, batch: Held, directory: str, renames: _Renames, errors: dict[int, StoreError]) -> _Renames:
        """Renames files into one directory without sidecars; returns those that need another way."""
        rest: _Renames = []
        renamed: dict[str, _Numbered] = {}
        checked: set[str] = set()
        for numbered in renames:
            index, source, destination = numbered
            try:
                above = source.path[: source.path.rfind("/")]
                if above not in checked:
                    batch.refuse_links(above)
                    batch.refuse_links(directory)
                    checked.add(above)
                # By whole names, as `_ends` says.
                kernel_rename.rename_no_replace(source.path, destination.path)
            except StoreError as error:
                error.operation = error.operation or "rename_file"
                errors[index] = error
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in kernel_rename.NOT_OFFERED:
                    rest.append(numbered)
                    continue
                told = translate(error, "rename_file", source, destination)
                if not isinstance(told, StoreError):
                    raise told from error
                errors[index] = told
            else:
                renamed[destination.name] = numbered
        # The system renames a directory or a link as gladly as a file. That none was among them is seen afterwards, in
        # one look at them all.
        for name, is_directory in others_among(directory, renamed.keys(), _ENTRIES_A_RENAME * len(renamed)).items():
            index, source, destination = renamed[name]
            errors[index] = self._put_other_back(source, destination, is_directory)
        return rest

    def _put_other_back(self, source: StorePath, destination: StorePath, is_directory: bool) -> StoreError:
        """Undoes the rename of what turned out to be no regular file; says what the caller is to hear."""
        refused: StoreError
        if is_directory:
            refused = StoreIsADirectoryError("a directory is there", path=source)
        else:
            refused = refuse_link(source.path)
        refused.operation = "rename_file"
        try:
            with Held() as held:
                first, place = _ends(held, destination, source)
                rename_no_replace(first, place)
        except (OSError, StoreError) as error:
            refused.causes = (error,)
            refused.outcome = "unknown"
        return refused

    @_typed
    def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Renames a directory with all its content, replacing nothing."""
        with Held() as held:
            first, place = _ends(held, source, destination)
            found = first.look().st_mode
            if stat.S_ISLNK(found) and first.guarded:
                raise refuse_link(source.path)
            if not stat.S_ISDIR(found):
                raise StoreNotADirectoryError("a file is there", operation="rename_directory", path=source)
            if self.exclusive_rename:
                try:
                    rename_no_replace(first, place)
                except OSError as error:
                    if error.errno not in kernel_rename.NOT_OFFERED:
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
        with Held() as held:
            first, place = _ends(held, source, destination)
            if stat.S_ISDIR(first.look().st_mode):
                raise StoreIsADirectoryError("a directory is there", operation="link_file", path=source)
            self._link(first, place)

    @_typed
    def find_link(self, root: StorePath, directories: Iterable[str]) -> str | None:
        """Looks for a link on the way from `root` to each directory."""
        try:
            handle = open_directory(root.path, working_part(root.path))
        except OSError as error:
            if error.errno in LEADS_NOWHERE:
                return None
            raise
        try:
            return first_link(handle, directories)
        finally:
            os.close(handle)

    @_typed
    def delete_file(self, path: StorePath) -> bool:
        """Deletes a file or a link."""
        with suppress(*GONE), Held() as held:
            place = held.place(path.path)
            is_directory = stat.S_ISDIR(place.look().st_mode)
            if not is_directory:
                drop_sidecar(place)
            try:
                os.unlink(place.name, dir_fd=place.at)
            except PermissionError as error:
                # macOS says EPERM where Linux says EISDIR.
                if is_directory:
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from error
                raise
            return True
        return False

    @_typed
    def delete_directory(self, path: StorePath, recursive: bool) -> bool:
        """Deletes a directory; of a link to one only the link, and only with `recursive`."""
        with Held() as held:
            try:
                place = held.place(path.path)
                found = place.look()
            except GONE:
                return False
            if not stat.S_ISDIR(found.st_mode):
                # What is deleted when it is empty is a directory nothing needs; where a link leads others may live.
                if not (recursive and describe(path, found, place).is_directory):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                return unlink(place)
            if recursive:
                return _delete_tree(path, place)
            try:
                os.rmdir(place.name, dir_fd=place.at)
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
        handle = open_to_read(path)
        try:
            flush(handle)
        finally:
            os.close(handle)

    def _rename_exclusively(self, source: Place, destination: Place) -> None:
        """Renames a file whose name nothing else uses."""
        if self._rename_or_link(source, destination):
            # One that is gone was unlinked by another that finishes the same rename.
            with _half_done(source, destination):
                unlink(source)

    def _drop_linked_name(self, source: Place, destination: Place) -> None:
        directory = private_directory(source.name, destination.name)
        private = f"{directory}/.{self.token}-{os.getpid()}-{next(self._numbers)}.aside"
        with _half_done(source, destination):
            drop_linked_name(source.name, destination.name, private)

    def _rename_or_link(self, source: Place, destination: Place) -> bool:
        """Renames a file, or where that cannot be told to replace nothing gives it the second name: then True."""
        if self.exclusive_rename:
            drop_orphan(destination)
            try:
                rename_no_replace(source, destination)
            except OSError as error:
                if error.errno not in kernel_rename.NOT_OFFERED:
                    raise
                self.exclusive_rename = False
            else:
                return False
        self._link(source, destination)
        return True

    def _link(self, source: Place, destination: Place) -> None:
        drop_orphan(destination)
        try:
            os.link(
                source.name,
                destination.name,
                src_dir_fd=source.at,
                dst_dir_fd=destination.at,
                follow_symlinks=False,
            )
        except PermissionError as error:
            # Linux says so for a file system without hard links, and where fs.protected_hardlinks forbids this one:
            # then another could be linked before.
            if error.errno != errno.EPERM or self._linked:
                raise
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP)) from error
        self._linked = True


def _ends(held: Held, source: StorePath, destination: StorePath) -> tuple[Place, Place]:
    """Both ends of a rename or link, on whose ways no link was seen where none may be.

    By their whole names: a directory that another driver gave another name fences off all that was in it.
    """
    first, place = held.place(source.path), held.place(destination.path)
    return Place(source.path, None, first.guarded), Place(destination.path, None, place.guarded)


def _by_directory(renames: Sequence[tuple[StorePath, StorePath]]) -> dict[str, list[int]]:
    """Indexes of renames by the directory they go into."""
    groups: dict[str, list[int]] = {}
    for index, (_source, destination) in enumerate(renames):
        groups.setdefault(destination.path.rpartition("/")[0], []).append(index)
    return groups


@contextmanager
def _half_done(source: Place, destination: Place) -> Iterator[None]:
    """What fails here fails after the file got its second name, so no error may say that nothing was done."""
    try:
        yield
    except OSError as error:
        raise StoreOutcomeUnknownError(
            f"the file has the name {destination.name} now; the one it had could not be removed: {error.strerror}",
            operation="rename_file",
            path=source.name,
        ) from error


def _delete_tree(path: StorePath, place: Place) -> bool:
    for _ in range(_DELETE_ROUNDS):
        try:
            remove_tree(place)
        except FileNotFoundError:
            return True
        except MountedBelowError as error:
            mounted = f"{path.path}/{error.below}"
            raise StoreCrossDeviceError(
                "another volume, or a part of one, is mounted below it: nothing there was deleted",
                operation="delete_directory",
                path=StorePath(path.scheme, path.authority, mounted),
                outcome="partial",
                next_step=f"unmount {mounted}",
            ) from error
        except OSError as error:
            # Another process put something into it, or a file or link in the place of a directory; or the reverse.
            if error.errno not in _CHANGED_MEANWHILE or _is_other(place):
                raise
        else:
            return True
    raise StoreNotEmptyError(
        "others keep adding to the directory", operation="delete_directory", path=path, outcome="partial"
    )


def _is_other(place: Place) -> bool:
    """Whether anything but a directory stands there."""
    try:
        return not stat.S_ISDIR(place.look().st_mode)
    except FileNotFoundError:
        return False
