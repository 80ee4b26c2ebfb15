"""Bodies of several parts (RFC 2046): an object with its metadata in one insert, and calls in a batch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.message import Message
from typing import Final

from committer_testing.emulators.gcs.errors import ServiceError

_BLANK_LINE: Final = re.compile(rb"\r?\n\r?\n")


def boundary_of(content_type: str, kind: str) -> bytes:
    """The boundary that a Content-Type names.

    Raises:
        ServiceError: It is of another kind, or names none.
    """
    parsed = Message()
    parsed["Content-Type"] = content_type
    boundary = parsed.get_boundary()
    if parsed.get_content_type() != kind or not boundary:
        raise ServiceError("invalid", f"The Content-Type must be {kind} with a boundary.")
    return boundary.encode()


def split(body: bytes, boundary: bytes) -> list[tuple[dict[str, str], bytes]]:
    """The parts of a body: their headers, by lower-case name, and what they hold.

    Raises:
        ServiceError: The body does not end with the closing boundary, or a part has no end of its headers.
    """
    # A line break before a delimiter is part of it; one more makes the first delimiter like the others. Google's Python
    # client ends the lines of a batch with a bare line feed, and the service takes it.
    pieces = re.split(rb"\r?\n--" + re.escape(boundary), b"\r\n" + body)
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise ServiceError("invalid", "Missing end boundary in multipart body.")
    return [_part(piece) for piece in pieces[1:-1]]


def head_and_rest(text: bytes) -> tuple[list[str], bytes]:
    """The lines before the first blank one, and what follows it.

    Raises:
        ServiceError: There is no blank line.
    """
    found = _BLANK_LINE.search(text)
    if found is None:
        raise ServiceError("invalid", "A part of the multipart body has no end of its headers.")
    return text[: found.start()].decode("utf-8", "replace").splitlines(), text[found.end() :]


def headers_in(lines: Iterable[str]) -> dict[str, str]:
    """Header lines, by lower-case name."""
    found = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip().lower()] = value.strip()
    return found


def _part(piece: bytes) -> tuple[dict[str, str], bytes]:
    # What follows the delimiter on its line are blanks at most, and the part may have no headers.
    lines, content = head_and_rest(piece)
    return headers_in(lines), content
