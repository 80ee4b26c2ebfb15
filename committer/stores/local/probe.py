"""What job setup tries on a disk before it relies on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from committer.errors import StoreExistsError, StorePermissionError, UnsupportedError
from committer.paths import StorePath
from committer.stores.local.mounts import lacking

if TYPE_CHECKING:
    from committer.stores.local.disk import Disk


def probe(disk: Disk, directory: StorePath, nonce: str) -> None:
    """Tries in `directory` what a commit relies on, and forgets abilities that turn out missing."""
    names = [directory / f".committer-probe-{nonce}-{number}" for number in range(5)]
    first, second, third, fourth, fifth = names
    try:
        disk.put(first, b"probe", third, False, False)
        written = disk.status(first)
        try:
            disk.rename_file(first, second, False)
        except (UnsupportedError, StorePermissionError) as error:
            if disk.exclusive_rename:
                raise
            raise lacking(directory, "has neither hard links nor a rename that replaces nothing") from error
        if disk.status(second).identity != written.identity:
            raise lacking(directory, "changes the inode number or time of a file that is renamed")
        disk.put(first, b"probe", third, False, False)
        _expect_refusal(lambda: disk.rename_file(first, second, False), directory)
        if disk.hard_links:
            try:
                disk.link_file(first, third)
            except UnsupportedError:
                disk.hard_links = False
        if disk.exclusive_rename:
            disk.make_directory(fourth, False)
            disk.make_directory(fifth, False)
            try:
                _expect_refusal(lambda: disk.rename_directory(fourth, fifth), directory)
            except UnsupportedError:
                if disk.exclusive_rename:
                    raise
    finally:
        for name in (first, second, third):
            disk.delete_file(name)
        for name in (fourth, fifth):
            disk.delete_directory(name, False)


def _expect_refusal(rename: Callable[[], None], directory: StorePath) -> None:
    try:
        rename()
    except StoreExistsError:
        return
    raise lacking(directory, "replaces a file although it was told not to")
