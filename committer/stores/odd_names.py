"""Objects that lie in no directory tree: a segment of their names is empty, ``.`` or ``..``.

Buckets hold such names; a `StorePath` holds none, and what reads a bucket as a tree opens something else under them, or
nothing. A listing shows each as no file and no directory, under its own name, so that who counts, replaces or compares
all that stands in a directory meets it.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import Final

from committer.errors import ConfigurationError, StoreNotADirectoryError
from committer.file_names import working_directory_in
from committer.paths import StorePath
from committer.stores.abilities import BATCH_DELETE
from committer.stores.base import Store
from committer.stores.status import FileStatus, Refusals

_ODD: Final = ("", ".", "..")


def is_odd(segment: str) -> bool:
    """Whether no path can hold a segment."""
    return segment in _ODD


async def delete_odd(store: Store, directory: StorePath) -> None:
    """Deletes what lies directly in a directory under such segments, where directories are not real: 7 calls at most.

    No listing of a job's own directory shows it, and the directory stays for it.
    """
    places = [StorePath(directory.scheme, directory.authority, f"{directory.path}/{segment}") for segment in _ODD]
    for place in places:
        # An object may have the name, too. A service that refuses a name holds none (SeaweedFS: 400 for one that ends
        # in a segment of dots).
        with suppress(StoreNotADirectoryError, ConfigurationError):
            await store.delete_directory(place, recursive=True)
    able = BATCH_DELETE.of(store)
    if able is not None:
        # Never by a request whose URL names them: what is on the way may take the dots for steps up.
        await able.delete_files([place for place in places if not place.path.endswith("/")])


def odd_status(directory: StorePath, name: str, tool: str, scheme: str) -> FileStatus | None:
    """What a listing of `directory` says of names that no path can hold; None in a job's own directories.

    Those have readers of their own, who take what they know, and are deleted whole.

    Args:
        directory: What is listed.
        name: The object's name; with a slash at its end all that begin so.
        tool: The command of the service that deletes one object, and with ``--recursive`` all that begin so.
        scheme: The scheme that this tool knows.
    """
    path = StorePath(directory.scheme, directory.authority, f"/{name}")
    if working_directory_in(path.path):
        return None
    place = shlex.quote(f"{scheme}://{directory.authority}/{name}")
    every = name.endswith("/")
    told = "the names of objects there have" if every else "its name has"
    return FileStatus(
        path,
        False,
        0,
        is_special=True,
        refuses=Refusals(
            move=f"{told} an empty segment, . or .., which no path can hold",
            advice=f"rename or delete {'them' if every else 'it'}: {tool}{' --recursive' * every} {place}",
        ),
    )
