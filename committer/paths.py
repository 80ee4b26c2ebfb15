"""Paths of files in stores, and their URIs.

A `StorePath` holds names unescaped. Only the URIs in records have percent escapes: `StorePath.uri` writes them,
`StorePath.from_uri` reads them. `StorePath.of` reads a user's text, and decodes nothing.
"""

from __future__ import annotations

import os
import re
import unicodedata
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from committer.errors import InvalidPathError
from committer.file_names import BAD_SEGMENT, check_relative

# Characters that java.net.URI keeps in a path component; it escapes every other ASCII character.
URI_PLAIN: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.!~*'();:@&=+$,/"
_NOT_PLAIN: Final = re.compile(f"[^{re.escape(URI_PLAIN.decode())}]")
_PLAIN_OR_ESCAPE: Final = URI_PLAIN + b"%"
_PLAIN_IN_TAIL: Final = _PLAIN_OR_ESCAPE + b"?[]"
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")

# Zs, Zl, Zp and Cc outside ASCII: java.net.URI escapes them and refuses them raw; other non-ASCII text stays raw.
_ESCAPED_CATEGORIES: Final = frozenset({"Zs", "Zl", "Zp", "Cc"})
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
_BAD_AUTHORITY: Final = re.compile(r"[\x00-\x20\x7f\"#%<>?\\^`{|}]|\s")
_HOST: Final = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?")


def encode_uri_path(path: str) -> str:
    """Escapes the path of a URI as java.net.URI does from its parts; raises `InvalidPathError` for invalid Unicode."""
    if path.isascii() and not path.encode().translate(None, URI_PLAIN):
        return path
    return _NOT_PLAIN.sub(_escaped_match, path)


def decode_uri_path(path: str) -> str:
    """Undoes `encode_uri_path`, also of raw non-ASCII text; raises `InvalidPathError` for what Java would refuse."""
    if _has_illegal(path, _PLAIN_OR_ESCAPE):
        raise InvalidPathError("a URI holds a character that must be escaped", path=ascii(path))
    if "%" not in path:
        return path
    if _BAD_ESCAPE.search(path):
        raise InvalidPathError("a URI holds a malformed escape", path=path)
    try:
        return unquote_to_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidPathError("a URI holds escapes that are not UTF-8", path=path) from error


def split_uri(text: str) -> tuple[str, str, str]:
    """Splits a URI into scheme (in lower case), authority and path; scheme and authority may be empty.

    Raises:
        InvalidPathError: The scheme or the authority is malformed, or the authority has a password.
    """
    colon, slash = text.find(":"), text.find("/")
    # A colon after the first slash belongs to a name.
    end = colon if colon >= 0 and (slash < 0 or colon < slash) else -1
    rest, authority = text[end + 1 :], ""
    if rest.startswith("//"):
        host_end = rest.find("/", 2)
        authority, rest = (rest[2:], "") if host_end < 0 else (rest[2:host_end], rest[host_end:])
    return ("" if end < 0 else _checked_scheme(text[:end])), (authority and _checked_authority(authority)), rest


@lru_cache(maxsize=256)
def _checked_scheme(scheme: str) -> str:
    if not _SCHEME.fullmatch(scheme):
        raise InvalidPathError(
            "what precedes the colon is not a scheme",
            path=ascii(scheme),
            next_step="a local name with a colon needs ./ before it",
        )
    return scheme.lower()


@lru_cache(maxsize=256)
def _checked_authority(authority: str) -> str:
    user, _, host = authority.rpartition("@")
    # These errors leave the text out: a URI with a key and a secret before its host ends here.
    if ":" in user:
        raise InvalidPathError("a URI holds a password", next_step="give credentials as storage options")
    if _BAD_AUTHORITY.search(authority) or not _HOST.fullmatch(host):
        raise InvalidPathError("a URI has a malformed authority", next_step="write it as scheme://bucket/path")
    return authority


def without_tail(path: str, text: str) -> str:
    """Returns a path without the query or fragment that follows it; raises `InvalidPathError` for a malformed one."""
    end = min(at for at in (path.find("?"), path.find("#")) if at >= 0)
    tail = path[end:].replace("#", "", 1)
    if _has_illegal(tail, _PLAIN_IN_TAIL) or _BAD_ESCAPE.search(tail):
        raise InvalidPathError("a URI has a malformed query or fragment", path=ascii(text))
    return path[:end]


def normalised(path: str, text: str, *, above_root: bool = False) -> str:
    """Returns an absolute path without empty, ``.`` and ``..`` segments and without a trailing slash.

    `text`, of which it is a part, is for errors. With `above_root` ``..`` at the root is the root, as on a
    local disk; else it is refused, as a NUL is.
    """
    if "\0" in path:
        raise InvalidPathError("a path holds a NUL", path=ascii(text), next_step="give a path without it")
    if path and not path.endswith("/") and "//" not in path and "/." not in path:
        return path
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if segments:
                segments.pop()
            elif not above_root:
                raise InvalidPathError(
                    "a path climbs above the root", path=text, next_step="leave out the .. that lead above it"
                )
        elif segment and segment != ".":
            segments.append(segment)
    return "/" + "/".join(segments)


def _must_escape(character: str) -> bool:
    return character.isascii() or unicodedata.category(character) in _ESCAPED_CATEGORIES


def _has_illegal(text: str, plain: bytes) -> bool:
    if text.isascii():
        return bool(text.encode().translate(None, plain))
    odd = set(text).difference(plain.decode())
    return any(_must_escape(character) for character in odd)


def _escaped_match(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":
        raise InvalidPathError(
            "a path is not valid Unicode and has no URI",
            path=ascii(match.string),
            next_step="rename the file so that UTF-8 can encode its name",
        )
    return "".join(f"%{byte:02X}" for byte in character.encode()) if _must_escape(character) else character


_COLLAPSED_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")


class StorePath(msgspec.Struct, frozen=True, order=True, gc=False):
    """Path in a store: immutable, hashable, ordered, cheap to pickle.

    Create one with `of` (from a user) or `from_uri` (from a record); the constructor itself checks nothing. Two
    spellings of one path, such as ``file:///a`` and ``file:/a``, are equal.

    Attributes:
        scheme: The store's scheme in lower case; ``file`` when none was given.
        authority: Bucket, ``container@account`` or ``host:port``; empty for local files.
        path: Absolute, not escaped, without empty, ``.`` or ``..`` segments and without a trailing slash
            (except ``/``).
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def of(cls, value: str | os.PathLike[str] | StorePath) -> StorePath:
        """Reads a user's URI, or path of the local disk, as Hadoop's ``new Path(String)`` does.

        Nothing is percent-decoded. In a text without a scheme ``~`` is expanded. A relative local path is below
        the current directory; ``.`` and ``..`` are collapsed without looking at the disk.

        Raises:
            InvalidPathError: It is empty, or relative with a scheme, climbs above the root of its store, has a
                NUL, or a password in its authority.
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
        """Reads the URI in a record, as Hadoop does: parsed, normalised, then percent-decoded as UTF-8.

        An absolute path without a scheme is a local file. As in Java, an unescaped ``?`` or ``#`` ends the path
        and the rest is dropped.

        Raises:
            InvalidPathError: Java would refuse it (bad escapes, characters that must be escaped), it is not
                absolute, its escapes are not UTF-8, or they hide a NUL, ``.`` or ``..`` as a segment.
        """
        scheme, authority, path = split_uri(text)
        if (authority and not scheme) or (not path.startswith("/") and (path or not authority)):
            raise InvalidPathError("a URI is not absolute", path=text)
        if "?" in path or "#" in path:
            path = without_tail(path, text)
        path = normalised(path, text)
        decoded = decode_uri_path(path)
        if decoded != path and BAD_SEGMENT.search(decoded, 1):
            # java.net.URI normalises before it decodes, so escaped dots would reach the store.
            segments = [segment for segment in decoded.split("/") if segment]
            if "." in segments or ".." in segments:
                raise InvalidPathError("a URI hides a relative segment behind escapes", path=text)
            decoded = "/" + "/".join(segments)
        if "\0" in decoded:
            raise InvalidPathError("a path holds a NUL", path=text)
        return cls(scheme or "file", authority, decoded)

    @property
    def uri(self) -> str:
        """The URI as Hadoop writes it: ``file:/a%20b``, ``abfs://container@account/dir``.

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
        """The parent directory; the root is its own parent."""
        return StorePath(self.scheme, self.authority, self.path.rpartition("/")[0] or "/")

    def __truediv__(self, name: str) -> StorePath:
        """Joins a relative name of one or more segments, not decoded; refuses what `check_relative` refuses."""
        check_relative(name)
        separator = "" if self.path == "/" else "/"
        return StorePath(self.scheme, self.authority, f"{self.path}{separator}{name}")

    def is_under(self, base: StorePath) -> bool:
        """Returns whether this is strictly below `base`, in the same store."""
        if self.scheme != base.scheme or self.authority != base.authority:
            return False
        if base.path == "/":
            return self.path != "/"
        return self.path.startswith(base.path + "/")

    def relative_to(self, base: StorePath) -> str:
        """Returns the name of this relative to `base`.

        Raises:
            InvalidPathError: This is not strictly below `base`.
        """
        if not self.is_under(base):
            raise InvalidPathError(f"{self} does not lie below {base}", path=self)
        return self.path[1 if base.path == "/" else len(base.path) + 1 :]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}" if self.authority else f"{self.scheme}:{self.path}"

    def __repr__(self) -> str:
        return f"StorePath({str(self)!r})"


def by_hand(place: StorePath) -> str:
    """Returns a path as the user's own tools name it: on a disk without the scheme."""
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
