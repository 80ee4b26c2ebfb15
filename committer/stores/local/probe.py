"""Trial of a disk at job setup, and the kinds of mount that cannot run jobs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from committer.advice import page
from committer.errors import StoreExistsError, StorePermissionError, UnsupportedError
from committer.paths import StorePath

if TYPE_CHECKING:
    from committer.stores.local.disk import Disk


# By a part of the file system's type or source.
_INSTEAD: Final = (
    ("gcsfuse", "gs://BUCKET/PATH"),
    ("blobfuse", "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"),
    ("s3fs", "s3://BUCKET/PATH"),
    ("mountpoint-s3", "s3://BUCKET/PATH"),
    ("goofys", "s3://BUCKET/PATH"),
)
_ANY: Final = "gs://…, abfss://… or s3://…"


def lacking(directory: StorePath, what: str) -> UnsupportedError:
    """Returns the error of a file system that lacks what every job needs."""
    kind, source = _mounted_at(directory.path)
    instead = next((uri for name, uri in _INSTEAD if name in kind or name in source), _ANY)
    return UnsupportedError(
        f"the file system that is mounted here ({kind or 'of unknown kind'}) {what}",
        operation="probe",
        path=directory,
        next_step=f"where it shows a bucket or a container, give the URI of that in place of the path: {instead}; else "
        f"write to another file system ({page('stores/local.md')})",
    )


def _mounted_at(path: str) -> tuple[str, str]:
    """Returns type and source of the file system of a path; empty if unknown."""
    place, best = os.fsencode(os.path.realpath(path)), b""
    found = ("", "")
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            for line in mounts:
                fields, _, described = line.partition(b" - ")
                top = fields.split(b" ", 5)[4]
                if len(top) >= len(best) and (place + b"/").startswith(top.rstrip(b"/") + b"/"):
                    kind, source = described.split(b" ", 2)[:2]
                    best, found = top, (os.fsdecode(kind), os.fsdecode(source))
    except (OSError, IndexError, ValueError):
        return "", ""
    return found


def probe(disk: Disk, directory: StorePath, nonce: str) -> None:
    """Tests in `directory` what a commit relies on, and withdraws abilities that are missing."""
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
