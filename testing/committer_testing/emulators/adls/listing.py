"""Listing a directory, level or whole tree, page by page."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice

from committer_testing.emulators.adls.errors import ServiceError
from committer_testing.emulators.adls.nodes import Node


def page(
    directory: Node, prefix: str, *, recursive: bool, after: str | None, limit: int, begin_from: str | None = None
) -> tuple[list[tuple[str, Node]], str | None]:
    """One page: paths relative to the filesystem with their nodes, and the continuation if there is more.

    Each directory comes right before what it holds, names in order of their code points. What is created or deleted
    between pages may or may not be seen; nothing else is left out or comes twice. Costs the page, not the directory.

    Args:
        directory: What to list.
        prefix: Its path.
        recursive: Whether to descend.
        after: A continuation of an earlier page.
        limit: How many at most.
        begin_from: The path, relative to `directory`, that the first page starts at, itself included.

    Raises:
        ServiceError: The continuation is none of ours.
    """
    start: list[str] | None = None
    inclusive = False
    if after is not None:
        start = _decode(after).split("/")
    elif begin_from:
        start, inclusive = begin_from.split("/"), True
    entries = list(islice(_walk(directory, "", recursive, start, inclusive), limit + 1))
    more = None
    if len(entries) > limit:
        entries.pop()
        more = _encode(entries[-1][0])
    if prefix:
        entries = [(f"{prefix}/{name}", node) for name, node in entries]
    return entries, more


def _walk(
    directory: Node, base: str, recursive: bool, start: list[str] | None, inclusive: bool
) -> Iterator[tuple[str, Node]]:
    names = directory.names()
    children = directory.children or {}
    first = 0
    if start:
        name, rest = start[0], start[1:]
        child = children.get(name)
        if rest or not inclusive:
            # The directory itself was in an earlier page (or is before the start); what it holds may not have been.
            if child is not None and child.is_directory and recursive:
                yield from _walk(child, f"{base}{name}/", recursive, rest or None, inclusive)
            first = bisect_right(names, name)
        else:
            first = bisect_left(names, name)
    for index in range(first, len(names)):
        name = names[index]
        child = children.get(name)
        if child is None:
            continue
        yield base + name, child
        if recursive and child.children:
            yield from _walk(child, f"{base}{name}/", recursive, None, False)


def _encode(name: str) -> str:
    return base64.b64encode(b"1!" + name.encode()).decode()


def _decode(token: str) -> str:
    try:
        text = base64.b64decode(token, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        text = ""
    if not text.startswith("1!"):
        raise ServiceError("InvalidQueryParameterValue")
    return text[2:]
