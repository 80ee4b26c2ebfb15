"""Functions on names at a destination or absolute paths: ancestors, folding, and what a store can hold."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from committer.file_names import working_directory_in
from committer.layout import COMMITTING, TEMPORARY
from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus


def with_ancestors(directories: Iterable[str], roots: AbstractSet[str] = frozenset()) -> set[str]:
    """Returns directories and all their ancestors below the destination or, for absolute names, below a root."""
    found = set(directories) - roots
    for directory in tuple(found):
        parent = directory.rpartition("/")[0]
        while parent and parent not in found and parent not in roots:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    found.discard("")
    return found


def ancestors(name: str) -> list[str]:
    """Returns the parent directories of a relative name, top down."""
    segments = name.split("/")[:-1]
    return ["/".join(segments[: depth + 1]) for depth in range(len(segments))]


def is_hidden(name: str) -> bool:
    """Whether readers of a table ignore a name: it starts with `_` or `.` and contains no `=`."""
    return name[:1] in ("_", ".") and "=" not in name


class NameFolding:
    """Folding of names: names that the store treats as equal become the same text."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._case = capabilities.case_folding
        self._unicode = capabilities.unicode_folding

    def fold(self, name: str) -> str:
        """Returns the name as the store compares it."""
        if self._case:
            name = name.casefold()
        return unicodedata.normalize("NFC", name) if self._unicode else name

    def fold_all(self, names: list[str]) -> list[str]:
        """Returns the names as the store compares them."""
        return [self.fold(name) for name in names] if self._case or self._unicode else names


def name_problem(name: str, capabilities: Capabilities, path_prefix_bytes: int) -> str | None:
    """Returns why the store cannot hold a relative name; `path_prefix_bytes` is the length of the path before it."""
    limit = capabilities.max_name_bytes
    for segment in name.split("/"):
        if limit is not None and len(segment) * 4 > limit and len(segment.encode()) > limit:
            return f"the segment {segment[:40]!r}… is longer than {limit} bytes"
        if capabilities.forbids_trailing_period and segment.endswith("."):
            return f"the segment {segment!r} ends in a period"
    if capabilities.checksum_sidecars:
        last = name.rpartition("/")[2]
        if last[0] == "." and (last.casefold() if capabilities.case_folding else last).endswith(".crc"):
            return f"Java's local file system keeps the checksums of other files under names like {last[:40]!r}"
    whole = capabilities.max_path_bytes
    if whole is not None and path_prefix_bytes + len(name.encode()) > whole:
        return f"the path is longer than {whole} bytes"
    return None


def name_problems(names: list[str], capabilities: Capabilities, path_prefix_bytes: int) -> Iterator[str]:
    """Yields a sentence for each name that the store cannot hold. Usually one test of all: 0.1 microseconds a name."""
    if not names or _all_storable(names, capabilities, path_prefix_bytes):
        return
    for name in names:
        problem = name_problem(name, capabilities, 0 if is_absolute(name) else path_prefix_bytes)
        if problem is not None:
            yield f"{name[:200]}: {problem}"


def _all_storable(names: list[str], capabilities: Capabilities, path_prefix_bytes: int) -> bool:
    text = "\n".join(("", *names, ""))
    longest = max(map(len, names)) * (1 if text.isascii() else 4)
    return not (
        (capabilities.max_name_bytes is not None and longest > capabilities.max_name_bytes)
        or (capabilities.max_path_bytes is not None and path_prefix_bytes + longest > capabilities.max_path_bytes)
        or (capabilities.forbids_trailing_period and ("./" in text or ".\n" in text))
        or (capabilities.checksum_sidecars and ("/." in text or "\n." in text))
    )


def is_absolute(name: str) -> bool:
    """Whether a name is an absolute path, outside the destination."""
    return name[:1] == "/"


def working_directory(status: FileStatus, above: StorePath) -> StorePath | None:
    """Returns the working directory of a job that a path found below `above` is or lies in, or None."""
    # A `_temporary` without job directories is a remnant of finished jobs, perhaps with entries or a report.
    name = status.path.relative_to(above)
    if not working_directory_in(name):
        return None
    path = above
    segments = name.split("/")
    for position, segment in enumerate(segments):
        path = path / segment
        if not working_directory_in(segment):
            continue
        below = segments[position + 1 :]
        if segment.casefold() != TEMPORARY:
            return path if below or status.is_directory else None
        if below[:1] != [COMMITTING] and (below[1:] or (below and status.is_directory)):
            return path / below[0]
    return None
