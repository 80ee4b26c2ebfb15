"""Table of other writers' metadata names (shown in docs/spark.md), and the search for them at a destination."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple

from committer.errors import StoreNotADirectoryError, StoreNotFoundError
from committer.file_names import working_directory_in
from committer.flow.workers import run_workers
from committer.paths import StorePath
from committer.stages.names import is_hidden
from committer.stores.base import FileStatus, Store
from committer.stores.helpers import status_or_none

Kind = Literal["summary", "marker", "sink log", "table"]
"""How a job treats the metadata: every job removes a ``summary`` of files that it changes; an overwrite of the
whole destination also a ``marker`` and a ``sink log``; a sink log refuses other jobs, a ``table`` refuses all.
"""

_LISTED: Final = 1000
_WILD: Final = re.compile(r"[*?[]")


class Mark(NamedTuple):
    """A row of the table: a name or pattern (a directory's ends with a slash); a match of `proof` must be inside."""

    name: str
    kind: Kind
    writer: str
    proof: tuple[str, ...] = ()


MARKS: Final = (
    # Spark's schema inference takes the schema of `_common_metadata`, else of `_metadata`, before that of any
    # data file. parquet-mr deletes both where it cannot rewrite them after an append (PARQUET-359).
    Mark("_metadata", "summary", "parquet-mr, Dask, fastparquet"),
    Mark("_common_metadata", "summary", "parquet-mr, Dask, fastparquet, Petastorm"),
    # docs.delta.io/presto-integration
    Mark("_symlink_format_manifest/", "summary", "Delta Lake, Hudi, for Presto, Athena and Hive"),
    # docs.databricks.com/archive/legacy/dbio-commit.html. Each names only the files of its own transaction.
    Mark("_committed_[0-9]*", "marker", "Databricks DBIO"),
    Mark("_committed_vacuum[0-9]*", "marker", "Databricks DBIO"),
    Mark("_started_[0-9]*", "marker", "Databricks DBIO"),
    Mark("_spark_metadata/", "sink log", "the file sink of Spark's structured streaming"),
    Mark("_delta_log/", "table", "Delta Lake"),
    Mark(".hoodie/", "table", "Hudi"),
    Mark("metadata/", "table", "Iceberg", ("version-hint.text", "*.metadata.json")),
    # paimon.apache.org/docs/master/concepts/basic-concepts
    Mark("schema/", "table", "Paimon", ("schema-[0-9]", "schema-[0-9]*[0-9]")),
    # lancedb.github.io/lance/format/table
    Mark("_versions/", "table", "Lance", ("*.manifest",)),
    # ducklake.select/docs/stable/duckdb/usage/paths: only data files are here, the catalog is in a database.
    Mark("ducklake-????????-????-????-????-????????????.parquet", "table", "DuckLake"),
)
"""All rows, in the order of the page on Spark."""

_EXACT: Final = {mark.name: mark for mark in MARKS if _WILD.search(mark.name) is None}
_PATTERNS: Final = tuple(mark for mark in MARKS if mark.name not in _EXACT)
_PREFIXES: Final = tuple(_WILD.split(mark.name)[0] for mark in _PATTERNS)
_SUMMARY_FILES: Final = tuple(mark.name for mark in MARKS if mark.kind == "summary" and mark.name[-1] != "/")
SUMMARY_NAMES: Final = (*_SUMMARY_FILES, *(f".{name}.crc" for name in _SUMMARY_FILES))
"""Names of summary files, and of their checksum files."""


def checksummed(name: str) -> str:
    """Returns the name of the file that a checksum file (`.name.crc`) belongs to; empty for any other name."""
    return name[1:-4] if name[:1] == "." and name.endswith(".crc") else ""


def mark_of(child: FileStatus) -> Mark | None:
    """Returns the row of the table that matches an entry, or the entry's checksum file; of links only tables' names."""
    name = child.path.name
    if child.is_link:
        mark = _EXACT.get(f"{name}/")
        return mark if mark is not None and mark.kind == "table" and not mark.proof else None
    if child.is_directory:
        return _EXACT.get(f"{name}/")
    name = checksummed(name) or name
    if name.startswith(_PREFIXES):
        return next((mark for mark in _PATTERNS if fnmatchcase(name, mark.name)), None)
    return _EXACT.get(name)


def is_replaced(child: FileStatus) -> bool:
    """Whether an overwrite of the whole destination replaces an entry with a hidden name."""
    mark = mark_of(child)
    return mark is not None and mark.kind != "table"


@dataclass(slots=True)
class RootView:
    """Contents of a destination: True for anything but jobs' directories, visible names, and others' metadata."""

    used: bool = False
    visible: bool = False
    marks: list[tuple[Mark, FileStatus]] = field(default_factory=list)

    def of(self, kinds: Iterable[Kind]) -> list[tuple[Mark, FileStatus]]:
        """Selects the metadata of some kinds."""
        return [(mark, status) for mark, status in self.marks if mark.kind in kinds]


async def look_at_root(store: Store, destination: StorePath) -> RootView:
    """Lists the first thousand children of a destination, and looks up the names of the table if there are more."""
    # One listing, one for each directory that may belong to a table, and with more children one call per name.
    view, marks, count = RootView(), list[tuple[Mark, FileStatus]](), 0
    async for child in store.list(destination):
        name = child.path.name
        view.used = view.used or not working_directory_in(name)
        view.visible = view.visible or not is_hidden(name)
        mark = mark_of(child)
        if mark is not None:
            marks.append((mark, child))
        count += 1
        if count >= _LISTED and view.visible:
            await _look_up(store, destination, marks)
            break
    for mark, status in marks:
        if not mark.proof or await _is_proved(store, status.path, mark):
            view.marks.append((mark, status))
    return view


async def first_data(store: Store, directory: StorePath, *, hidden: bool = False) -> StorePath | None:
    """Finds a name in a directory that a job must not add to; hidden names count only with `hidden`."""
    # Jobs' directories never count; nor, without real directories, other tools' directory markers (``name_$folder$``,
    # or an object that ends in a slash). One listing; with markers alone, one for each of their directories.
    below: list[StorePath] = []
    try:
        async for child in store.list(directory):
            name = child.path.name
            if working_directory_in(name) or (is_hidden(name) and not hidden):
                continue
            if store.capabilities.directories or not (child.is_directory or _is_marker(child)):
                return child.path
            if child.is_directory:
                below.append(child.path)
    except StoreNotFoundError:
        return None
    for path in below:
        found = await first_data(store, path, hidden=hidden)
        if found is not None:
            return found
    return None


def _is_marker(status: FileStatus) -> bool:
    return status.path.name.endswith("_$folder$") and not status.size


async def _look_up(store: Store, destination: StorePath, marks: list[tuple[Mark, FileStatus]]) -> None:
    seen = {mark.name for mark, status in marks if not checksummed(status.path.name)}

    async def look(name: str) -> None:
        status = await status_or_none(store, destination / name.rstrip("/"))
        if status is not None and mark_of(status) is _EXACT[name]:
            marks.append((_EXACT[name], status))

    names = [name for name in _EXACT if name not in seen]
    await run_workers(names, look, workers=len(_EXACT), operation="look_at_root")


async def _is_proved(store: Store, directory: StorePath, mark: Mark) -> bool:
    try:
        async for child in store.list(directory):
            if any(fnmatchcase(child.path.name, pattern) for pattern in mark.proof):
                return True
    except (StoreNotFoundError, StoreNotADirectoryError):
        pass
    return False


def refusal_of(view: RootView, *, whole: bool) -> tuple[str, str] | None:
    """Returns the problem and the next step if other writers' metadata forbids a job; `whole` if it overwrites all."""
    for mark, _status in view.of(("table",)):
        problem = (
            f"the destination is a table of {mark.writer} ({mark.name} is there): its readers follow the table's own "
            "metadata, so they would not see new files, and would miss replaced ones"
        )
        return problem, (f"write it with {mark.writer}, or choose another destination")
    if not whole and view.of(("sink log",)):
        problem = (
            "the destination holds _spark_metadata, the log of the file sink of Spark's structured streaming: Spark "
            "reads only files that this log names, and would not see the new files"
        )
        return problem, ("overwrite the whole destination, which replaces the log too; or write into another directory")
    return None
