"""Renames of many files on the local disk in one hop to a thread."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from committer.errors import CommitterError, StoreError, StoreIsADirectoryError, StorePreconditionError
from committer.file_names import working_part
from committer.paths import StorePath
from committer.stores.local import kernel_rename
from committer.stores.local.calls import (
    WORTH_A_LISTING,
    drop_orphan,
    identity_of,
    look_among,
    may_hold_sidecars,
    rename_no_replace,
)
from committer.stores.local.errors import translate
from committer.stores.local.places import Held, Place, refuse_link
from committer.stores.local.renames import Renames, ends_of

# Most entries listed per file that goes into a directory; more would cost as much as a look at each file.
_ENTRIES_A_RENAME: Final = 8

_Numbered: TypeAlias = tuple[int, StorePath, StorePath]


class BatchRenames(Renames):
    """Renames of many files, with shared looks at directories."""

    def rename_files(
        self,
        renames: Sequence[tuple[StorePath, StorePath]],
        seen: Sequence[tuple[str | None, int]] | None = None,
        identities: Sequence[str | None] | None = None,
    ) -> dict[int, StoreError]:
        """Renames many files, replacing nothing; returns errors by index.

        If enough files go into one directory, two listings of it replace two looks at each file; a directory with
        many more entries is not listed. A file that then has the inode number of its identity needs no look at its
        source. Sidecars of sources stay. Files with `seen` are checked instead, and their sidecars deleted.

        An error that is no `StoreError` is raised, and later files are not renamed; it is unknown if that of any
        file is.
        """
        errors: dict[int, StoreError] = {}
        try:
            with Held() as batch:
                if seen is None:
                    self._rename_batch(batch, renames, identities or [None] * len(renames), errors)
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
        plainly: dict[str, dict[str, int]] = {}
        # No program keeps checksums in a job's own directory.
        own: dict[str, bool] = {}
        try:
            for directory, indexes in _by_directory([source for source, _destination in renames]).items():
                bare = (
                    self.exclusive_rename
                    and len(indexes) >= WORTH_A_LISTING
                    and working_part(renames[indexes[0]][0].path) < 0
                    and may_hold_sidecars(directory, _ENTRIES_A_RENAME * len(indexes)) is False
                )
                for index in indexes:
                    source, destination = renames[index]
                    above, _slash, name = destination.path.rpartition("/")
                    if above not in own:
                        own[above] = working_part(above) >= 0
                    try:
                        _refuse_other(source, seen[index])
                        if bare and _rename_plainly(batch, source, destination, above, may_be_orphan=not own[above]):
                            plainly.setdefault(above, {})[name] = index
                        else:
                            self.rename_file(source, destination, False, seen[index][0])
                    except StoreError as error:
                        error.operation = error.operation or "rename_file"
                        errors[index] = error
        finally:
            self._look_for_the_lost(batch, renames, plainly, errors)

    def _look_for_the_lost(
        self,
        batch: Held,
        renames: Sequence[tuple[StorePath, StorePath]],
        renamed: dict[str, dict[str, int]],
        errors: dict[int, StoreError],
    ) -> None:
        """Moves files back that a link planted after the look at their destination directory led elsewhere."""
        for above, names in renamed.items():
            for name in batch.missing_in(above, names):
                source, destination = renames[names[name]]
                errors[names[name]] = _move_back(source, destination, refuse_link(above))

    def _rename_batch(
        self,
        batch: Held,
        renames: Sequence[tuple[StorePath, StorePath]],
        identities: Sequence[str | None],
        errors: dict[int, StoreError],
    ) -> None:
        unproved: set[int] = set()
        try:
            self._rename_by_directory(batch, renames, identities, unproved, errors)
        finally:
            self._look_for_strangers(batch, renames, unproved.difference(errors), errors)

    def _rename_by_directory(
        self,
        batch: Held,
        renames: Sequence[tuple[StorePath, StorePath]],
        identities: Sequence[str | None],
        unproved: set[int],
        errors: dict[int, StoreError],
    ) -> None:
        """Renames files by destination directory; `unproved` gets indexes of files without proof of identity."""
        batch.begin_at([source.path[: source.path.rfind("/")] for source, _destination in renames])
        for directory, indexes in _by_directory([destination for _source, destination in renames]).items():
            some: list[_Numbered] = [(index, *renames[index]) for index in indexes]
            if self.exclusive_rename:
                entries = _ENTRIES_A_RENAME * len(indexes) if len(indexes) >= WORTH_A_LISTING else 0
                holds = may_hold_sidecars(directory, entries) if entries else None
                with_sidecar = [] if holds is False else _with_sidecar(directory, some)
                bare = [numbered for numbered in some if numbered not in with_sidecar] if with_sidecar else some
                rest: list[_Numbered] = []
                renamed: dict[str, _Numbered] = {}
                try:
                    self._rename_bare(batch, directory, bare, renamed, rest, errors)
                finally:
                    # Looks at each file of a large directory, which is not listed.
                    arrived = self._put_others_back(directory, renamed, errors, entries if holds is False else 0)
                    unproved.update(
                        [
                            index
                            for index, number in arrived.items()
                            if not (identities[index] or "").startswith(f"{number}:")
                        ]
                    )
                some = with_sidecar + rest
            for index, source, destination in some:
                try:
                    self.rename_file(source, destination, False, None, batch)
                except StoreError as error:
                    errors[index] = error
                else:
                    unproved.add(index)

    def _look_for_strangers(
        self,
        batch: Held,
        renames: Sequence[tuple[StorePath, StorePath]],
        renamed: Iterable[int],
        errors: dict[int, StoreError],
    ) -> None:
        """Moves back files of planted links: a name that still exists in the open directory was not renamed."""
        moved: dict[str, dict[str, int]] = {}
        for index in renamed:
            above, _slash, name = renames[index][0].path.rpartition("/")
            moved.setdefault(above, {})[name] = index
        for above, names in moved.items():
            try:
                left = batch.left_in(above, names)
            except OSError:
                # Cannot be listed: no evidence against the renames.
                continue
            for name in left:
                source, destination = renames[names[name]]
                errors[names[name]] = _move_back(source, destination, refuse_link(above))

    def _rename_bare(
        self,
        batch: Held,
        directory: str,
        renames: list[_Numbered],
        renamed: dict[str, _Numbered],
        rest: list[_Numbered],
        errors: dict[int, StoreError],
    ) -> None:
        """Renames files without sidecars into one directory; adds each to `renamed`, `rest` or `errors`."""
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
    ) -> dict[int, int]:
        """Undoes renames of directories and links; returns the inode number of each file by index, 0 if unseen."""
        # The kernel renames directories and links, too; one look at all of them afterwards finds these.
        found = look_among(directory, renamed.keys(), entries)
        for name, is_directory in found.others.items():
            index, source, destination = renamed[name]
            errors[index] = self._put_other_back(source, destination, is_directory)
        return {numbered[0]: found.numbers.get(name, 0) for name, numbered in renamed.items()}

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


def _with_sidecar(directory: str, renames: list[_Numbered]) -> list[_Numbered]:
    """Returns the files whose new names have a sidecar; one look each."""
    cut = len(directory) + 1

    def has_sidecar(destination: StorePath) -> bool:
        try:
            return os.access(f"{directory}/.{destination.path[cut:]}.crc", os.F_OK)
        except ValueError:
            # Not a valid name: the rename reports it.
            return False

    return [numbered for numbered in renames if has_sidecar(numbered[2])]


def _rename_plainly(batch: Held, source: StorePath, destination: StorePath, above: str, *, may_be_orphan: bool) -> bool:
    """Renames a checked file without sidecar; returns False if the file system has no such rename."""
    try:
        # By whole names: see `ends_of`.
        batch.refuse_links(above)
        if may_be_orphan:
            drop_orphan(Place(destination.path, None, guarded=False))
        kernel_rename.rename_no_replace(source.path, destination.path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in kernel_rename.NOT_OFFERED:
            return False
        raise translate(error, "rename_file", source, destination) from error
    return True


def _refuse_other(source: StorePath, seen: tuple[str | None, int]) -> None:
    try:
        found = os.lstat(source.path)
    except (OSError, ValueError) as error:
        raise translate(error, "rename_file", source) from error
    if stat.S_ISDIR(found.st_mode):
        raise StoreIsADirectoryError("a directory is there", operation="rename_file", path=source)
    if (identity_of(found), found.st_size) != seen:
        raise StorePreconditionError("another file is there", operation="rename_file", path=source)


def _move_back(source: StorePath, destination: StorePath, refused: StoreError) -> StoreError:
    refused.operation = "rename_file"
    try:
        kernel_rename.rename_no_replace(destination.path, source.path)
    except OSError as error:
        refused.causes = (error,)
        refused.outcome = "unknown"
    return refused


def _by_directory(paths: Sequence[StorePath]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for index, path in enumerate(paths):
        groups.setdefault(path.path.rpartition("/")[0], []).append(index)
    return groups
