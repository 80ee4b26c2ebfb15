"""Store calls of a local disk as blocking methods."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from committer.errors import (
    RecordError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    UnsupportedError,
)
from committer.file_names import working_part
from committer.paths import StorePath
from committer.stores.base import FileStatus
from committer.stores.helpers import too_long
from committer.stores.local.calls import (
    GONE,
    LEADS_NOWHERE,
    PAGE,
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
    no_entry,
    open_file,
    open_to_read,
    read_all,
    read_page,
    rename,
    unlink,
    write_all,
)
from committer.stores.local.errors import lacking, typed
from committer.stores.local.places import LISTED, Held, Place, open_directory
from committer.stores.local.renames import Renames
from committer.stores.local.rights import process_status, refusals
from committer.stores.local.trees import delete_tree, first_link

# Set by the process or the place; any other attribute distinguishes a directory.
_LABELS: Final = frozenset({"security.selinux"})
_DEFAULT_ACCESS: Final = "system.posix_acl_default"


class Rights(NamedTuple):
    """Owner, group and permission bits (with setgid and sticky) of a directory."""

    mode: int
    user: int
    group: int


def rights_made_in(parent: str, umask: int) -> Rights | None:
    """Returns the rights of a directory that this process creates in `parent`; None if other rules apply."""
    try:
        found = os.stat(parent)
        if not stat.S_ISDIR(found.st_mode) or _DEFAULT_ACCESS in os.listxattr(parent):
            return None
    except OSError:
        return None
    user, group, mode = os.geteuid(), os.getegid(), 0o777 & ~umask
    if found.st_mode & stat.S_ISGID:
        return Rights(mode | stat.S_ISGID, user, found.st_gid)
    # Some mounts pass the group on without that bit.
    return Rights(mode, user, group) if found.st_gid == group else None


def has_sole_rights(held: Held, path: str, expected: Rights) -> bool:
    """Whether a directory has these rights, no access list or other attribute, and no sidecar in it."""
    try:
        place = held.place(path)
        handle = os.open(place.name, LISTED | os.O_NOFOLLOW, dir_fd=place.at)
    except OSError:
        return False
    try:
        found = os.fstat(handle)
        rights = Rights(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)
        if rights != expected or not _LABELS.issuperset(os.listxattr(handle)):
            return False
        return not any(name[0] == "." and name[-4:].lower() == ".crc" for name in os.listdir(handle))
    except OSError:
        return False
    finally:
        os.close(handle)


def umask_of_process() -> int | None:
    """Returns the umask; None except on Linux, since elsewhere it must be set to be read, which all threads see."""
    umask = process_status(b"Umask:")
    return None if umask is None else int(umask, 8)


class Disk(Renames):
    """Blocking store calls on the local disk, and its known abilities."""

    def probe(self, directory: StorePath, nonce: str) -> None:
        """Tests in `directory` what a commit relies on, and withdraws abilities that are missing."""
        names = [directory / f".committer-probe-{nonce}-{number}" for number in range(5)]
        first, second, third, fourth, fifth = names
        try:
            self.put(first, b"probe", third, False, False)
            written = self.status(first)
            try:
                self.rename_file(first, second, False)
            except (UnsupportedError, StorePermissionError) as error:
                if self.exclusive_rename:
                    raise
                raise lacking(directory, "has neither hard links nor a rename that replaces nothing") from error
            if self.status(second).identity != written.identity:
                raise lacking(directory, "changes the inode number or time of a file that is renamed")
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
                self.delete_file(name)
            for name in (fourth, fifth):
                self.delete_directory(name, False)

    @typed
    def status(self, path: StorePath) -> FileStatus:
        """Returns the status of a path; of a link, its own."""
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

    @typed
    def list(self, directory: StorePath, entries: Entries | None = None) -> tuple[Page, Entries | None]:
        """Reads one page of a directory; returns it and the open directory for the next one, None after the last."""
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

    @typed
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
            if not stat.S_ISREG(found.st_mode):
                # A device has no end, and a read takes a pipe's content from its reader.
                raise RecordError("the path is a pipe, a socket or a device, not a file", operation="read", path=path)
            # Does not read a longer file; the limit + 1 finds a file that grows meanwhile.
            data = read_all(handle, found.st_size, limit + 1) if found.st_size <= limit else None
        finally:
            os.close(handle)
        if data is None or len(data) > limit:
            raise too_long(path, limit)
        return data

    @typed
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
                # By its whole path: if another driver renamed the directory, its content is fenced off. The
                # temporary name is unique, so a link in the directory's place leads to no such file.
                named = Place(temporary.path, None, guarded=False)
                if exclusive:
                    self._rename_exclusively(named, place)
                else:
                    drop_sidecar(place)
                    rename(named, place)
            except BaseException:
                # Cleanup of the job deletes it otherwise; the first error matters.
                with suppress(OSError):
                    unlink(first)
                raise
        if durable:
            self._force_name(path)
        return status

    def _force_name(self, path: StorePath) -> None:
        try:
            flush_directory(os.path.dirname(path.path))
        except OSError as error:
            raise StoreOutcomeUnknownError(
                f"the file exists, but could not be forced to the disk: {error.strerror or error}",
                operation="put",
                path=path,
                next_step="see that the disk works, and has room; without durability='fsync' nothing is forced to it",
            ) from error

    @typed
    def open_writer(self, path: StorePath) -> int:
        """Creates a new file and returns its descriptor."""
        with Held() as held:
            place = held.place(path.path)
            drop_orphan(place)
            return os.open(place.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=place.at)

    @typed
    def write(self, path: StorePath, handle: int, parts: Iterable[Buffer], offset: int) -> None:
        """Writes parts of a file, one after the other."""
        for part in parts:
            write_all(handle, part, offset)
            offset += len(part)

    @typed
    def close(self, path: StorePath, handle: int, data: Buffer, offset: int, durable: bool) -> FileStatus:
        """Writes the last part, closes the file and returns its status."""
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

    @typed
    def abort(self, path: StorePath, handle: int | None) -> None:
        """Closes an open file and deletes it."""
        if handle is not None:
            os.close(handle)
        with suppress(*GONE), Held() as held:
            unlink(held.place(path.path))

    @typed
    def release(self, path: StorePath, handle: int) -> None:
        """Closes the file and keeps it."""
        os.close(handle)

    @typed
    def make_directory(self, path: StorePath, parents: bool) -> bool:
        """Creates a directory, with `parents` also its parents."""
        with Held() as held:
            try:
                return make_one_directory(held.place(path.path), path.path)
            except FileNotFoundError:
                if not parents:
                    raise
            make_directories(held, path.path.rpartition("/")[0])
            return make_one_directory(held.place(path.path), path.path)

    @typed
    def find_link(self, root: StorePath, directories: Iterable[str]) -> str | None:
        """Finds a link on the way from `root` to each directory."""
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

    @typed
    def made_alike(self, first: StorePath, pairs: Sequence[tuple[StorePath, StorePath]]) -> Sequence[bool]:
        """Compares directories with new ones of this process; errors name `first`."""
        umask = umask_of_process()
        if umask is None:
            return [False] * len(pairs)
        made = {parent.path: rights_made_in(parent.path, umask) for parent in {parent for _, parent in pairs}}
        with Held() as held:
            return [
                (expected := made[parent.path]) is not None and has_sole_rights(held, directory.path, expected)
                for directory, parent in pairs
            ]

    @typed
    def delete_file(self, path: StorePath) -> bool:
        """Deletes a file or link."""
        with suppress(*GONE), Held() as held:
            place = held.place(path.path)
            is_directory = stat.S_ISDIR(place.look().st_mode)
            if not is_directory:
                drop_sidecar(place)
            try:
                os.unlink(place.name, dir_fd=place.at)
            except PermissionError as error:
                # macOS raises EPERM where Linux raises EISDIR.
                if is_directory:
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from error
                raise
            return True
        return False

    @typed
    def delete_directory(self, path: StorePath, recursive: bool) -> bool:
        """Deletes a directory; of a link to one only the link, and only with `recursive`."""
        with Held() as held:
            try:
                place = held.place(path.path)
                found = place.look()
            except GONE:
                return False
            if not stat.S_ISDIR(found.st_mode):
                # Without `recursive` only an empty directory is deleted; a link's target may be in use.
                if not (recursive and describe(path, found, place).is_directory):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                return unlink(place)
            if recursive:
                return delete_tree(path, place)
            try:
                os.rmdir(place.name, dir_fd=place.at)
            except FileNotFoundError:
                return False
            except FileExistsError as error:
                # POSIX allows EEXIST for a directory with children.
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY)) from error
            return True

    @typed
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


def _expect_refusal(rename: Callable[[], None], directory: StorePath) -> None:
    try:
        rename()
    except StoreExistsError:
        return
    raise lacking(directory, "replaces a file although it was told not to")
