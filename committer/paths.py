"""Paths of files in stores, their textual URIs as Hadoop writes them, and Hive partition directory names.

A `StorePath` holds names as they are. Percent escapes live only in the textual form that records hold: `StorePath.uri`
makes it, `StorePath.from_uri` reads it. What a user types is not a URI in that sense: `StorePath.of` decodes nothing.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec

from committer.errors import InvalidPathError

HIVE_DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

# What java.net.URI keeps in a path component; it escapes every other ASCII character.
URI_PLAIN: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.!~*'();:@&=+$,/"
_NOT_PLAIN: Final = re.compile(f"[^{re.escape(URI_PLAIN.decode())}]")
_PLAIN_OR_ESCAPE: Final = URI_PLAIN + b"%"
_PLAIN_IN_TAIL: Final = _PLAIN_OR_ESCAPE + b"?[]"
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
# Zs, Zl, Zp and Cc outside ASCII: java.net.URI escapes them and refuses them raw; other non-ASCII text stays raw.
_ESCAPED_CATEGORIES: Final = frozenset({"Zs", "Zl", "Zp", "Cc"})

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
_COLLAPSED_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
_BAD_AUTHORITY: Final = re.compile(r"[\x00-\x20\x7f\"#%<>?\\^`{|}]|\s")
_HOST: Final = re.compile(r"(?:\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?")

_BAD_SEGMENT: Final = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)")
# The very directories that committers work in (FileOutputCommitter's PENDING_DIR_NAME; S3A's MagicCommitPaths, before
# Hadoop 3.4.0 and since), in whatever case: on some disks it is one name. A name that only begins like one is as good
# as any other: `_temporary_id=1` is a partition.
_WORKING: Final = r"(?:_temporary(?=/|\Z)|__magic(?=/|\Z)|__magic_job-[^/]*)"
_WORKING_DIRECTORY: Final = re.compile(rf"(?:\A|/)({_WORKING})", re.IGNORECASE)
_RESERVED_SEGMENT: Final = re.compile(rf"/(_SUCCESS(?=/|\Z)|{_WORKING})", re.IGNORECASE)
_MARKER: Final = re.compile(r"_SUCCESS(?=/|\Z)", re.IGNORECASE)

_HIVE_ESCAPED: Final = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\[\\\\\\]^{]")
_HIVE_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")


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
            return cls("file", "", _local_path(text))
        scheme, authority, path = _split(text)
        if not scheme:
            if authority:
                raise InvalidPathError(
                    "a path starts with two slashes: is it a host without a scheme?",
                    path=text,
                    next_step="begin with one slash, or with a scheme",
                )
            return cls("file", "", _local_path(path))
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
        return cls(scheme, authority, _normalised(path, text))

    @classmethod
    def from_uri(cls, text: str) -> StorePath:
        """Reads the textual URI a record holds, as Hadoop does: parsed, normalised, then percent-decoded as UTF-8.

        An absolute path without a scheme is a local file. As in Java, an unescaped ``?`` or ``#`` ends the path and
        what follows is dropped.

        Raises:
            InvalidPathError: Java would refuse it (bad escapes, characters that must be escaped), it is not absolute,
                its escapes are not UTF-8, or they hide a NUL, ``.`` or ``..`` as a segment.
        """
        scheme, authority, path = _split(text)
        if (authority and not scheme) or (not path.startswith("/") and (path or not authority)):
            raise InvalidPathError("a URI is not absolute", path=text)
        if "?" in path or "#" in path:
            path = _without_tail(path, text)
        path = _normalised(path, text)
        decoded = decode_uri_path(path)
        if decoded != path and _BAD_SEGMENT.search(decoded, 1):
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
        _check_relative(name)
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


def check_file_name(name: str) -> str:
    """Returns `name` when it may be the destination of a file, relative to the job's destination.

    Raises:
        InvalidPathError: It is empty, absolute, has an empty, ``.`` or ``..`` segment or a NUL, is not valid Unicode,
            or has a segment that the commit protocols own: ``_SUCCESS`` as its first, or a working directory at any
            depth (see `working_directory_in`), for jobs may run into directories below.
    """
    _check_relative(name)
    reserved = _reserved_in(name)
    if reserved:
        raise InvalidPathError(f"a file name has the segment {reserved}, which commits own", path=name)
    _check_unicode(name)
    return name


def check_absolute_name(name: str, roots: Collection[str]) -> str:
    """Returns `name`, an absolute path, when it may be the destination of a file outside the job's destination.

    Commits own their names at every depth there: other jobs may run into any directory below a root.

    Args:
        name: Absolute, not escaped.
        roots: Absolute paths, none of them below another.

    Raises:
        InvalidPathError: It lies strictly below none of `roots`, has an empty, ``.`` or ``..`` segment or a NUL, is not
            valid Unicode, or has a segment below its root that is ``_SUCCESS`` or a working directory.
    """
    _check_relative(name[1:])
    root = root_of(name, roots)
    if root is None:
        raise InvalidPathError(
            f"{name!a} lies outside the destination, and below none of the roots that were given", path=ascii(name)
        )
    reserved = _RESERVED_SEGMENT.search(name, len(root))
    if reserved is not None:
        raise InvalidPathError(f"a path has a segment {reserved[1]}, which commits own", path=ascii(name))
    _check_unicode(name)
    return name


def root_of(name: str, roots: Collection[str]) -> str | None:
    """The root that an absolute path lies strictly below; None when there is none."""
    parent = name.rpartition("/")[0]
    while parent and parent not in roots:
        parent = parent.rpartition("/")[0]
    return parent or None


def working_directory_in(name: str) -> str:
    """The first segment of a path, absolute or relative, that is a committer's working directory; empty without one.

    The one rule for what belongs to jobs: ``_temporary``, ``__magic`` and ``__magic_job-*``, at any depth, and nothing
    that only begins like them.
    """
    found = _WORKING_DIRECTORY.search(name) if "_" in name else None
    return found[1] if found is not None else ""


def has_reserved_segment(path: str) -> bool:
    """Whether any segment of an absolute path is one that the commit protocols own."""
    return _RESERVED_SEGMENT.search(path) is not None


def is_reserved(name: str) -> bool:
    """Whether a name, relative to a destination, is one that the commit protocols own: see `check_file_name`."""
    return bool(_reserved_in(name))


def working_part(path: str) -> int:
    """Where in an absolute path the first working directory of commit protocols begins, with its slash; -1 without any.

    What comes from there on is a job's: no link stands there by right.
    """
    found = _WORKING_DIRECTORY.search(path) if "/_" in path else None
    return found.start() if found is not None else -1


def may_be_reserved(names: list[str]) -> bool:
    """Whether any of many relative names may be `is_reserved`; False is certain, and costs no look at each name."""
    return "\n_" in (text := "\n".join(("", *names))) or "/_" in text


def _reserved_in(name: str) -> str:
    if name[:1] != "_" and "/_" not in name:
        return ""
    marker = _MARKER.match(name)
    return marker[0] if marker is not None else working_directory_in(name)


def encode_uri_path(path: str) -> str:
    """Escapes the path of a URI as java.net.URI does from its parts.

    Raises:
        InvalidPathError: It is not valid Unicode.
    """
    if path.isascii() and not path.encode().translate(None, URI_PLAIN):
        return path
    return _NOT_PLAIN.sub(_escaped_match, path)


def decode_uri_path(path: str) -> str:
    """Undoes `encode_uri_path`; accepts non-ASCII text both raw and escaped.

    Raises:
        InvalidPathError: It has a bad escape, escapes that are not UTF-8, or a character that must be escaped.
    """
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


def escape_path_name(text: str) -> str:
    """Escapes a partition column or value for a directory name, as Hive and Spark do."""
    return _HIVE_ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape_path_name(text: str) -> str:
    """Undoes `escape_path_name`. A percent sign without two hex digits stays as it is."""
    return _HIVE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def partition_directory(partition: Iterable[tuple[str, str | None]]) -> str:
    """Names the directory of one partition, such as ``year=2026/at=10%3A00``; both columns and values are escaped.

    Args:
        partition: Column and value, outermost first. None and the empty string both read back as null.

    Raises:
        InvalidPathError: A column has no name.
    """
    names = []
    for column, value in partition:
        if not column:
            raise InvalidPathError("a partition column has no name")
        names.append(f"{escape_path_name(column)}={escape_path_name(value) if value else HIVE_DEFAULT_PARTITION}")
    return "/".join(names)


def _split(text: str) -> tuple[str, str, str]:
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
            "what stands before the colon is not a scheme",
            path=ascii(scheme),
            next_step="a local name with a colon needs ./ before it",
        )
    return scheme.lower()


@lru_cache(maxsize=256)
def _checked_authority(authority: str) -> str:
    user, _, host = authority.rpartition("@")
    # The text is left out of these errors: a URI with a key and a secret before its host ends here.
    if ":" in user:
        raise InvalidPathError("a URI holds a password", next_step="give credentials as storage options")
    if _BAD_AUTHORITY.search(authority) or not _HOST.fullmatch(host):
        raise InvalidPathError("a URI has a malformed authority")
    return authority


def _local_path(path: str) -> str:
    if not path.startswith("/"):
        try:
            path = f"{os.getcwd()}/{path}"
        except OSError as error:
            raise InvalidPathError("a path is relative and the current directory is gone", path=path) from error
    return _normalised(path, path, above_root=True)


def _normalised(path: str, text: str, *, above_root: bool = False) -> str:
    if "\0" in path:
        raise InvalidPathError("a path holds a NUL", path=ascii(text))
    if path and not path.endswith("/") and "//" not in path and "/." not in path:
        return path
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if segments:
                segments.pop()
            elif not above_root:
                raise InvalidPathError("a path climbs above the root", path=text)
        elif segment and segment != ".":
            segments.append(segment)
    return "/" + "/".join(segments)


def _without_tail(path: str, text: str) -> str:
    end = min(at for at in (path.find("?"), path.find("#")) if at >= 0)
    tail = path[end:].replace("#", "", 1)
    if _has_illegal(tail, _PLAIN_IN_TAIL) or _BAD_ESCAPE.search(tail):
        raise InvalidPathError("a URI has a malformed query or fragment", path=ascii(text))
    return path[:end]


def _check_unicode(name: str) -> None:
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InvalidPathError("a file name is not valid Unicode", path=ascii(name)) from error


def _check_relative(name: str) -> None:
    if not isinstance(name, str):
        raise InvalidPathError(
            f"a file's name is a str, not a {type(name).__name__}",
            next_step="give a name relative to the destination, such as 'year=2026/part-00000.csv'",
        )
    if name and name[0] not in "./" and name[-1] != "/" and "/." not in name and "//" not in name and "\0" not in name:
        return
    if _BAD_SEGMENT.search(name) or "\0" in name:
        raise InvalidPathError(
            f"a relative name {_fault_of(name)}",
            path=ascii(name),
            next_step="give a name relative to the destination, such as 'year=2026/part-00000.csv'",
        )


def _fault_of(name: str) -> str:
    if not name:
        return "is empty"
    if name.startswith("/"):
        return "is absolute"
    if "\0" in name:
        return "holds a NUL"
    if name.endswith("/"):
        return "ends with a slash, as no file's does"
    return "has a segment no store can hold: an empty one, . or .."


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
        raise InvalidPathError("a path is not valid Unicode and has no URI", path=ascii(match.string))
    return "".join(f"%{byte:02X}" for byte in character.encode()) if _must_escape(character) else character


Destination: TypeAlias = str | os.PathLike[str] | StorePath
"""A path as users give it; `StorePath.of` reads it."""
