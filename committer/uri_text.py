"""The text of a URI, as java.net.URI and Hadoop's ``Path`` read and write it: its parts, and escapes in its path."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from committer.errors import InvalidPathError

# What java.net.URI keeps in a path component; it escapes every other ASCII character.
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


def split_uri(text: str) -> tuple[str, str, str]:
    """The scheme in lower case, the authority and the path of a URI; scheme and authority are empty where it has none.

    Raises:
        InvalidPathError: The scheme or the authority is malformed, or the authority holds a password.
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
        raise InvalidPathError("a URI has a malformed authority", next_step="write it as scheme://bucket/path")
    return authority


def without_tail(path: str, text: str) -> str:
    """A path up to the query or the fragment that follows it.

    Raises:
        InvalidPathError: These hold what must be escaped.
    """
    end = min(at for at in (path.find("?"), path.find("#")) if at >= 0)
    tail = path[end:].replace("#", "", 1)
    if _has_illegal(tail, _PLAIN_IN_TAIL) or _BAD_ESCAPE.search(tail):
        raise InvalidPathError("a URI has a malformed query or fragment", path=ascii(text))
    return path[:end]


def normalised(path: str, text: str, *, above_root: bool = False) -> str:
    """An absolute path without empty, ``.`` and ``..`` segments and without a slash at its end.

    Args:
        path: The path.
        text: What it is part of, for errors.
        above_root: Whether ``..`` at the root is the root, as on a local disk.

    Raises:
        InvalidPathError: It holds a NUL, or climbs above the root.
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
