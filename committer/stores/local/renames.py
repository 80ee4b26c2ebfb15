"""Renames files and directories of a local disk, one or many at a time, without replacing anything."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import os
import shlex
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Final, Literal, TypeAlias

from committer.errors import (
    CommitterError,
    InvalidPathError,
    StoreError,
    StoreIsADirectoryError,
    StoreNotADirectoryError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    StoreUnavailableError,
    UnsupportedError,
)
from committer.file_names import working_part
from committer.layout import TEMPORARY
from committer.paths import StorePath
from committer.stores.local import kernel_rename
from committer.stores.local.calls import (
    GONE,
    WORTH_A_LISTING,
    drop_orphan,
    drop_sidecar,
    identity_of,
    may_hold_sidecars,
    others_among,
    rename,
    rename_no_replace,
    unlink,
)
from committer.stores.local.errors import translate, typed
from committer.stores.local.places import Held, Place, refuse_link
from committer.stores.local.rights import protected

# Most entries listed per file that goes into a directory; more would cost as much as a look at each file.
_ENTRIES_A_RENAME: Final = 8

_Numbered: TypeAlias = tuple[int, StorePath, StorePath]


def private_directory(source: str, destination: str) -> str:
    """Returns the directory of the two names that is the job's: the deeper one below `_temporary`, else the second."""
    first, second = os.path.dirname(source), os.path.dirname(destination)
    return first if _depth(first) > _depth(second) else second


def _depth(directory: str) -> int:
    names = directory.split("/")
    return len(names) - names.index(TEMPORARY) if TEMPORARY in names else 0


def drop_linked_name(linked: os.stat_result, source: str, destination: str, private: str) -> None:
    """Removes the first name of a file that got a second one, unless another file has that name now.

    The process may have been suspended between the two steps, another driver may have finished the rename, and
    another job may have put its file there. So the name is not unlinked: its file moves to the unused name
    `private`, and is deleted only if it is the file at `destination`; else it moves back, replacing nothing. In a
    directory of a finished job the move fails, without effect.

    Raises:
        StoreOutcomeUnknownError: The second name was removed meanwhile, so the file has only the first; or another
            file was moved and its name is taken by a third file: it is kept as `private`.
    """
    if not _are_one(source, destination):
        _refuse_lost_name(linked, source, destination)
        return
    try:
        os.rename(source, private)
    except GONE:
        # Another driver finished the rename, or the job is over.
        return
    if _are_one(private, destination):
        os.unlink(private)
        return
    # On a disk that folds case, "A" still exists after it became "a": the two are one name.
    one_name = source.casefold() == destination.casefold()
    back = destination if one_name else source
    try:
        _put_back(private, back)
    except FileExistsError as error:
        raise StoreOutcomeUnknownError(
            f"a file that was put at {source} meanwhile was moved to {private}, and another one exists there now",
            operation="rename_file",
            path=source,
            next_step=f"look at both, and move {private} where it belongs",
        ) from error
    if not one_name:
        _refuse_lost_name(linked, source, destination)


def _refuse_lost_name(linked: os.stat_result, source: str, destination: str) -> None:
    """Refuses a file that has only its first name: a rollback or another user removed the second."""
    if (found := _mark(source)) is not None and found == _mark_of(linked):
        raise StoreOutcomeUnknownError(
            f"the name {destination} that the file had got was taken away again; it exists at {source}",
            operation="rename_file",
            path=source,
        )


def _put_back(private: str, back: str) -> None:
    try:
        kernel_rename.rename_no_replace(private, back)
    except OSError as error:
        if error.errno not in kernel_rename.NOT_OFFERED:
            raise
    else:
        return
    try:
        os.link(private, back, follow_symlinks=False)
    except PermissionError:
        # A directory, or another user's file that may not be linked.
        if os.path.lexists(back):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), back) from None
        os.rename(private, back)
    else:
        os.unlink(private)


def _are_one(first: str, second: str) -> bool:
    mark = _mark(first)
    return mark is not None and mark == _mark(second)


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        return _mark_of(os.lstat(path))
    except GONE:
        return None


def _mark_of(found: os.stat_result) -> tuple[int, int, int]:
    # Inode numbers are reused: the time tells the files apart.
    return found.st_dev, found.st_ino, found.st_mtime_ns


class Renames:
    """Renames and links on a disk. Its known abilities are attributes; `token` is a random text for unique names."""

    def __init__(self, *, exclusive_rename: bool) -> None:
        self.exclusive_rename: bool = exclusive_rename and kernel_rename.OFFERED
        self.hard_links: bool = True
        self.token: str = ""
        self._linked = False
        self._numbers = itertools.count()

    def rename_files(
        self, renames: Sequence[tuple[StorePath, StorePath]], seen: Sequence[tuple[str | None, int]] | None = None
    ) -> dict[int, StoreError]:
        """Renames many files, replacing nothing; returns errors by index.

        If enough files go into one directory, two listings of it replace two looks at each file; a directory with
        many more entries is not listed. Sidecars of sources stay. Files with `seen` are checked instead, and their
        sidecars deleted.

        An error that is no `StoreError` is raised, and later files are not renamed; it is unknown if that of any
        file is.
        """
        errors: dict[int, StoreError] = {}
        try:
            with Held() as batch:
                if seen is None:
                    self._rename_batch(batch, renames, errors)
                else:
                    self._rename_seen(batch, renames, seen, errors)
        except CommitterError as error:
            unknown = [one for one in errors.values() if one.outcome == "unknown"]
            if unknown:
                error.outcome, error.causes = "unknown", (*error.causes, *unknown)
            raise
        return errors

    def _rename_seen(
        self,
        batch: Held,
        renames: Sequence[tuple[StorePath, StorePath]],
        seen: Sequence[tuple[str | None, int]],
        errors: dict[int, StoreError],
    ) -> None:
        targets = {destination.path.rpartition("/")[0] for _source, destination in renames}
        # No program keeps checksums in a job's own directory.
        aside = min(targets) if len(targets) == 1 else ""
        takes_no_sidecars = working_part(aside) >= 0
        for directory, some in _by_directory(renames, end=0).items():
            entries = _ENTRIES_A_RENAME * len(some) if takes_no_sidecars and len(some) >= WORTH_A_LISTING else 0
            rest = some
            if self.exclusive_rename and entries and may_hold_sidecars(directory, entries) is False:
                rest = []
                self._rename_plainly(batch, aside, some, {}, rest, errors, seen=seen)
            for index, source, destination in rest:
                try:
                    _refuse_other(source, seen[index])
                    self.rename_file(source, destination, False, seen[index][0], held=batch)
                except StoreError as error:
                    error.operation = error.operation or "rename_file"
                    errors[index] = error

    def _rename_batch(
        self, batch: Held, renames: Sequence[tuple[StorePath, StorePath]], errors: dict[int, StoreError]
    ) -> None:
        for directory, some in _by_directory(renames, end=1).items():
            if self.exclusive_rename:
                entries = _ENTRIES_A_RENAME * len(some) if len(some) >= WORTH_A_LISTING else 0
                has_none = bool(entries) and may_hold_sidecars(directory, entries) is False
                rest: list[_Numbered] = []
                renamed: dict[str, _Numbered] = {}
                try:
                    self._rename_plainly(batch, directory, some, renamed, rest, errors, sidecars=not has_none)
                finally:
                    # Looks at each file of a large directory, which is not listed.
                    self._put_others_back(directory, renamed, errors, entries if has_none else 0)
                some = rest
            for index, source, destination in some:
                try:
                    self.rename_file(source, destination, False, held=batch, files_of_job=True)
                except StoreError as error:
                    errors[index] = error

    def _rename_plainly(
        self,
        batch: Held,
        directory: str,
        renames: list[_Numbered],
        renamed: dict[str, _Numbered],
        rest: list[_Numbered],
        errors: dict[int, StoreError],
        *,
        seen: Sequence[tuple[str | None, int]] | None = None,
        sidecars: bool = False,
    ) -> None:
        """Renames files into one directory; adds each to `renamed`, `rest` or `errors`.

        With `sidecars` it may hold some of names that do not exist.
        """
        checked: set[str] = set()
        rename, name_at = kernel_rename.rename_no_replace, len(directory) + 1
        for numbered in renames:
            _index, source, destination = numbered
            first, second = source.path, destination.path
            try:
                above = first[: first.rfind("/")]
                if above not in checked:
                    batch.refuse_links(above)
                    if not checked:
                        batch.refuse_links(directory)
                    checked.add(above)
                if seen is not None:
                    _refuse_other(source, seen[numbered[0]])
                if sidecars:
                    drop_orphan(Place(second, None, guarded=False))
                # By whole names: see `ends_of`.
                rename(first, second)
            except StoreError as error:
                error.operation = error.operation or "rename_file"
                errors[numbered[0]] = error
            except (OSError, ValueError) as error:
                if isinstance(error, OSError) and error.errno in kernel_rename.NOT_OFFERED:
                    rest.append(numbered)
                    continue
                told = translate(error, "rename_file", source, destination)
                if not isinstance(told, StoreError):
                    raise told from error
                errors[numbered[0]] = told
            else:
                renamed[second[name_at:]] = numbered

    def _put_others_back(
        self, directory: str, renamed: dict[str, _Numbered], errors: dict[int, StoreError], entries: int
    ) -> None:
        """Undoes renames of directories and links, which the kernel renames like files."""
        # One look at all of them afterwards finds these.
        for name, is_directory in others_among(directory, renamed.keys(), entries).items():
            index, source, destination = renamed[name]
            errors[index] = self._put_other_back(source, destination, is_directory)

    def _put_other_back(self, source: StorePath, destination: StorePath, is_directory: bool) -> StoreError:
        """Undoes the rename of a directory or link, and returns the error to report."""
        refused: StoreError
        if is_directory:
            refused = StoreIsADirectoryError("a directory is there", path=source)
        else:
            refused = refuse_link(source.path)
        refused.operation = "rename_file"
        try:
            with Held() as held:
                first, place = ends_of(held, destination, source)
                rename_no_replace(first, place)
        except (OSError, StoreError) as error:
            refused.causes = (error,)
            refused.outcome = "unknown"
        return refused

    @typed
    def rename_file(
        self,
        source: StorePath,
        destination: StorePath,
        replace: bool,
        identity: str | None = None,
        *,
        held: Held | None = None,
        files_of_job: bool = False,
    ) -> None:
        """Renames a file. Without exclusive renames not atomic: both names exist for a moment.

        `held` are the open directories of a batch. Of `files_of_job` no other call uses the source's name, and links
        are refused. Else a link in a job's directory is renamed only if it has the given identity.
        """
        with nullcontext(held) if held is not None else Held() as opened:
            first, place = ends_of(opened, source, destination)
        found = first.look()
        if stat.S_ISLNK(found.st_mode) and (
            files_of_job or (first.guarded and identity not in (None, identity_of(found)))
        ):
            raise refuse_link(source.path)
        if stat.S_ISDIR(found.st_mode):
            raise StoreIsADirectoryError("a directory is there", operation="rename_file", path=source)
        if replace:
            drop_sidecar(place)
            rename(first, place)
            if found.st_nlink > 1:
                # rename(2) does nothing if both are names of one file.
                self._drop_linked_name(found, first, place)
        elif files_of_job:
            self._rename_exclusively(first, place)
        elif self._rename_or_link(first, place):
            self._drop_linked_name(found, first, place)
        drop_orphan(first)

    @typed
    def rename_directory(self, source: StorePath, destination: StorePath) -> None:
        """Renames a directory with all its content, replacing nothing."""
        with Held() as held:
            first, place = ends_of(held, source, destination)
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
        # rename(2) would replace an empty directory created meanwhile. Claiming the name first would leave an empty
        # directory if the process dies.
        raise UnsupportedError(
            "this file system cannot rename a directory without the risk of replacing one",
            operation="rename_directory",
            path=source,
        )

    @typed
    def link_file(self, source: StorePath, destination: StorePath) -> None:
        """Gives a file a second name."""
        with Held() as held:
            first, place = ends_of(held, source, destination)
            if stat.S_ISDIR(first.look().st_mode):
                raise StoreIsADirectoryError("a directory is there", operation="link_file", path=source)
            self._link(first, place)

    @typed
    def enclose_file(self, path: StorePath, name: str) -> None:
        """Replaces a file, in one step, with a directory that holds it; a lock excludes a second process."""
        above, _slash, last = path.path.rpartition("/")
        beside = f"{above}/.committer-{hashlib.sha256(os.fsencode(last)).hexdigest()[:16]}.aside"
        handle = os.open(path.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _lock(handle, path)
            found = os.fstat(handle)
            if not (stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.lstat(path.path))):
                return
            _remove_what_was_left(beside)
            os.mkdir(beside)
            try:
                os.link(path.path, f"{beside}/{name}", follow_symlinks=False)
                kernel_rename.exchange(beside, path.path)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(f"{beside}/{name}")
                os.rmdir(beside)
                if error.errno in kernel_rename.NOT_OFFERED:
                    error.errno = errno.ENOTSUP
                raise
            with suppress(OSError):
                # After the exchange this hidden name is a second link to the file; readers ignore it if it stays.
                os.unlink(beside)
        finally:
            os.close(handle)

    def _rename_exclusively(self, source: Place, destination: Place) -> None:
        """Renames a file whose name no other call uses."""
        if self._rename_or_link(source, destination):
            # A missing one was unlinked by a driver that finishes the same rename.
            with _half_done(source, destination):
                unlink(source)

    def _drop_linked_name(self, linked: os.stat_result, source: Place, destination: Place) -> None:
        directory = private_directory(source.name, destination.name)
        private = f"{directory}/.{self.token}-{os.getpid()}-{next(self._numbers)}.aside"
        with _half_done(source, destination):
            drop_linked_name(linked, source.name, destination.name, private)

    def _rename_or_link(self, source: Place, destination: Place) -> bool:
        """Renames a file without replacing; else links it to the second name and returns True."""
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
                source.name, destination.name, src_dir_fd=source.at, dst_dir_fd=destination.at, follow_symlinks=False
            )
        except PermissionError as error:
            # Linux raises EPERM for a file system without hard links, and if fs.protected_hardlinks forbids this
            # one; the latter if an earlier link worked.
            if error.errno != errno.EPERM or self._linked or protected(*_paths_of(source, destination)):
                raise
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP)) from error
        self._linked = True


def _lock(handle: int, path: StorePath) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreUnavailableError(
            "another process holds a lock on the file",
            operation="enclose_file",
            path=path,
            next_step=f"wait until it ends; `lsof {shlex.quote(path.path)}` shows it",
        ) from error


def _remove_what_was_left(beside: str) -> None:
    """Removes the second name, or the directory, that a process left when killed with the lock."""
    with suppress(FileNotFoundError):
        try:
            os.unlink(beside)
        except (IsADirectoryError, PermissionError):
            for name in os.listdir(beside):
                os.unlink(f"{beside}/{name}")
            os.rmdir(beside)


def _by_directory(renames: Sequence[tuple[StorePath, StorePath]], *, end: Literal[0, 1]) -> dict[str, list[_Numbered]]:
    """Groups renames by the directory of their sources (`end` 0) or destinations."""
    groups: dict[str, list[_Numbered]] = {}
    for index, ends in enumerate(renames):
        groups.setdefault(ends[end].path.rpartition("/")[0], []).append((index, *ends))
    return groups


def _refuse_other(source: StorePath, seen: tuple[str | None, int]) -> None:
    try:
        found = os.lstat(source.path)
    except (OSError, ValueError) as error:
        raise translate(error, "rename_file", source) from error
    if stat.S_ISDIR(found.st_mode):
        raise StoreIsADirectoryError("a directory is there", operation="rename_file", path=source)
    if (identity_of(found), found.st_size) != seen:
        raise StorePreconditionError("another file is there", operation="rename_file", path=source)


def ends_of(held: Held, source: StorePath, destination: StorePath) -> tuple[Place, Place]:
    """Returns both ends of a rename or link by their whole paths, after a check for links in a job's part of them.

    By whole paths, since a driver fences off a directory's content by renaming the directory.
    """
    first, place = held.place(source.path), held.place(destination.path)
    return Place(source.path, None, first.guarded), Place(destination.path, None, place.guarded)


def _paths_of(*places: Place) -> list[StorePath]:
    return [StorePath("file", "", place.name) for place in places]


@contextmanager
def _half_done(source: Place, destination: Place) -> Iterator[None]:
    """Turns errors into `StoreOutcomeUnknownError`: the file already has its second name."""
    try:
        yield
    except OSError as error:
        raise StoreOutcomeUnknownError(
            f"the file has the name {destination.name} now; the one it had could not be removed: {error.strerror}",
            operation="rename_file",
            path=source.name,
        ) from error
