"""What a store says about one path."""

from __future__ import annotations

import msgspec

from committer.paths import StorePath


class Refusals(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a store knows that it would refuse to do with a file or directory; each a reason, empty where none is known.

    Attributes:
        move: To rename it away, to replace it or to delete it.
        link: To give it a second name.
        enter: To put anything into it.
        mounted: Whether it is the top of another volume, or a link to a directory there: nothing can be renamed into
            it, or out of it.
        advice: What a user does so that it can be moved, where the store knows.
    """

    move: str = ""
    link: str = ""
    enter: str = ""
    mounted: bool = False
    advice: str = ""


class FileStatus(msgspec.Struct, frozen=True, gc=False):
    """What a store says about one path.

    Attributes:
        path: The path asked for, or listed.
        is_directory: Whether it is a directory, or a link that leads to one; else it is a file.
        size: Length in bytes; 0 for a directory.
        modified: Seconds since the epoch, or None where the store does not say. Never used to decide what happened.
        identity: The store's proof that this is the very file that was written, unchanged by a rename where
            `Capabilities.identity_through_rename` holds; None where the store has none, and for directories. Where
            it is an etag that S3 made of the content, it proves the bytes and not who wrote them: `stamp` does.
        is_link: Whether it is a symbolic link, to whatever or to nowhere. Everything but `is_directory` then speaks of
            the link itself: to rename or delete it moves the link, never what it leads to.
        is_special: Whether it is neither file, directory nor link: a pipe, a socket, a device; in a bucket, objects
            whose names no path can hold (see `committer.stores.odd_names`), under the name that all of them begin with.
        stamp: What the file was stamped with when it was made (see `committer.stores.uploads`): proves, with its
            length, who wrote it. Told by `Store.status` only: S3's listings hold no metadata. None without one.
        refuses: What the store would refuse to do with it, where it knows without a further call; None where it knows
            of nothing. A job refuses before its decision what would stop it afterwards.
        version: What the store's conditions know this file by at this moment, where `Capabilities.versions` holds. No
            identity: a rename changes it, and nothing compares it. It only saves a rename a look (see
            `committer.stores.abilities.SupportsVersions`).
    """

    path: StorePath
    is_directory: bool
    size: int
    modified: float | None = None
    identity: str | None = None
    is_link: bool = False
    is_special: bool = False
    stamp: str | None = None
    refuses: Refusals | None = None
    version: str | None = None
