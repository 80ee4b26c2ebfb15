"""Paths of files in stores.

A `StorePath` holds names as they are. Percent escapes live only in the textual form that records hold: `StorePath.uri`
makes it, `StorePath.from_uri` reads it. What a user types is not a URI in that sense: `StorePath.of` decodes nothing.
"""

from __future__ import annotations

import os
import re
from typing import Final, TypeAlias

import msgspec

from committer.errors import InvalidPathError
from committer.file_names import BAD_SEGMENT, check_relative
from committer.uri_text import decode_uri_path, encode_uri_path, normalised, split_uri, without_tail

_COLLAPSED_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")


class StorePath(msgspec.Struct, frozen=True, order=True, gc=False):
    """One place in one store: immutable, hashable, ordered, cheap to pickle.

    Make one with `of` (from a user) or `from_uri` (from a record); the constructor itself checks nothing. Two spellings
    of one place, such as ``file:///a`` and ``file:/a``, are equal.

    Attributes:
        scheme: The store's scheme in lower case; ``file`` when none was given.
        authority: Bucket, ``container@account`` or ``host:port``; empty for local files.
        path: Absolute, not escaped, without empty, ``.`` or ``..`` segments and without a slash at its end (but ``/``).
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def of(cls, value: str | os.PathLike[str] | StorePath) -> StorePath:
        """Reads what a user gives: a URI, or a path of the local disk, as Hadoop's ``new Path(String)`` does.

        Nothing is percent-decoded and ``~`` is not expanded. A relative local path is taken from the current
        directory; ``.`` and ``..`` are collapsed without looking at the disk.

        Raises:
            InvalidPathError: It is empty, or relative with a scheme, climbs above the root of its store, holds a NUL,
                or has a password in its authority.
        """
        if isinstance(value, StorePath):
            return value
        try:
            text: str | bytes = os.fspath(value)
        except TypeError:
            raise InvalidPathError(
                f"a path is a str, an os.PathLike or a StorePath, not a {type(value).__name__}",
                next_step="give a URI or a local path, such as '/data/flights'",
            ) from None
        if isinstance(text, bytes):
            text = os.fsdecode(text)
        if not text:
            raise InvalidPathError("a path is empty", next_step="give a URI or a local path, such as '/data/flights'")
        if not isinstance(value, str):
            if _COLLAPSED_URI.match(text):
                raise InvalidPathError(
                    "a path object cannot hold a URI: it loses the slashes before the authority",
                    path=text,
                    next_step="pass the URI as a string",
                )
            return cls("file", "", _local_path(os.path.expanduser(text)))
        scheme, authority, path = split_uri(text)
        if not scheme:
            if authority:
                raise InvalidPathError(
                    "a path starts with two slashes: is it a host without a scheme?",
                    path=text,
                    next_step="begin with one slash, or with a scheme",
                )
            return cls("file", "", _local_path(os.path.expanduser(path)))
        if not authority and not path:
            raise InvalidPathError(
                f"{scheme}: is followed by no path",
                path=text,
                next_step=f"write where it is after {scheme}://; a local name with a colon needs ./ before it",
            )
        if not path.startswith("/") and (path or not authority):
            raise InvalidPathError(
                "a relative path cannot follow a scheme",
                path=text,
                next_step="a local name with a colon needs ./ before it",
            )
        if scheme == "file" and not authority:
            return cls(scheme, authority, _local_path(path))
        return cls(scheme, authority, normalised(path, text))

    @classmethod
    def from_uri(cls, text: str) -> StorePath:
        """Reads the textual URI a record holds, as Hadoop does: parsed, normalised, then percent-decoded as UTF-8.

        An absolute path without a scheme is a local file. As in Java, an unescaped ``?`` or ``#`` ends the path and
        what follows is dropped.

        Raises:
            InvalidPathError: Java would refuse it (bad escapes, characters that must be escaped), it is not absolute,
                its escapes are not UTF-8, or they hide a NUL, ``.`` or ``..`` as a segment.
        """
        scheme, authority, path = split_uri(text)
        if (authority and not scheme) or (not path.startswith("/") and (path or not authority)):
            raise InvalidPathError("a URI is not absolute", path=text)
        if "?" in path or "#" in path:
            path = without_tail(path, text)
        path = normalised(path, text)
        decoded = decode_uri_path(path)
        if decoded != path and BAD_SEGMENT.search(decoded, 1):
            # java.net.URI normalises before it decodes, so escaped dots would reach the store as they are.
            segments = [segment for segment in decoded.split("/") if segment]
            if "." in segments or ".." in segments:
                raise InvalidPathError("a URI hides a relative segment behind escapes", path=text)
            decoded = "/" + "/".join(segments)
        if "\0" in decoded:
            raise InvalidPathError("a path holds a NUL", path=text)
        return cls(scheme or "file", authority, decoded)

    @property
    def uri(self) -> str:
        """The textual URI as Hadoop writes it: ``file:/a%20b``, ``abfs://container@account/dir``.

        Raises:
            InvalidPathError: A name is not valid Unicode (an undecodable local file name).
        """
        if self.authority:
            return f"{self.scheme}://{self.authority}{encode_uri_path(self.path)}"
        return f"{self.scheme}:{encode_uri_path(self.path)}"

    @property
    def name(self) -> str:
        """The last segment; empty for the root."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> StorePath:
        """The directory this lies in; the root is its own parent."""
        return StorePath(self.scheme, self.authority, self.path.rpartition("/")[0] or "/")

    def __truediv__(self, name: str) -> StorePath:
        """Joins a relative name of one or more segments, taken as it is.

        Raises:
            InvalidPathError: It is empty, absolute, or has an empty, ``.`` or ``..`` segment or a NUL.
        """
        check_relative(name)
        separator = "" if self.path == "/" else "/"
        return StorePath(self.scheme, self.authority, f"{self.path}{separator}{name}")

    def is_under(self, base: StorePath) -> bool:
        """Whether this lies strictly below `base`, in the same store."""
        if self.scheme != base.scheme or self.authority != base.authority:
            return False
        if base.path == "/":
            return self.path != "/"
        return self.path.startswith(base.path + "/")

    def relative_to(self, base: StorePath) -> str:
        """The name that `base` must be joined with to give this.

        Raises:
            InvalidPathError: This does not lie strictly below `base`.
        """
        if not self.is_under(base):
            raise InvalidPathError(f"{self} does not lie below {base}", path=self)
        return self.path[1 if base.path == "/" else len(base.path) + 1 :]

    def depth_below(self, base: StorePath) -> int:
        """How many segments this lies below `base`: 0 for `base` itself, 1 for its children.

        Raises:
            InvalidPathError: This is neither `base` nor below it.
        """
        return 0 if self == base else self.relative_to(base).count("/") + 1

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}" if self.authority else f"{self.scheme}:{self.path}"

    def __repr__(self) -> str:
        return f"StorePath({str(self)!r})"


def by_hand(place: StorePath) -> str:
    """A place that a user is to handle by hand, as the user's tools name it: on a disk by its path."""
    return place.path if place.scheme == "file" else place.uri


def _local_path(path: str) -> str:
    if not path.startswith("/"):
        try:
            path = f"{os.getcwd()}/{path}"
        except OSError as error:
            raise InvalidPathError(
                "a path is relative and the current directory is gone", path=path, next_step="give an absolute path"
            ) from error
    return normalised(path, path, above_root=True)


Destination: TypeAlias = str | os.PathLike[str] | StorePath
"""A path as users give it; `StorePath.of` reads it."""
