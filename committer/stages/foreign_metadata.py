"""Metadata that other writers leave at a destination: the one table of known names, and a look for them.

The page docs/spark.md shows the table.
"""

from __future__ import annotations

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
"""What becomes of it. Any job that changes files removes a ``summary`` of them. An overwrite of the whole destination
removes a ``marker`` and a ``sink log``, too; others leave the marker, and are refused where a sink log is. A ``table``
refuses every job.
"""

_LISTED: Final = 1000


class Mark(NamedTuple):
    """One row of the table.

    Attributes:
        name: The name; a directory's ends with a slash; ``*`` stands for any text.
        kind: What becomes of it.
        writer: Who leaves it.
        proof: Patterns of file names, one of which must be in the directory; empty where its name says enough.
    """

    name: str
    kind: Kind
    writer: str
    proof: tuple[str, ...] = ()


MARKS: Final = (
    # Spark's schema inference takes the schema of `_common_metadata`, else of `_metadata`, before that of any data
    # file. parquet-mr deletes both where it cannot rewrite them after an append (PARQUET-359).
    Mark("_metadata", "summary", "parquet-mr, Dask, fastparquet"),
    Mark("_common_metadata", "summary", "parquet-mr, Dask, fastparquet, Petastorm"),
    # docs.delta.io/presto-integration
    Mark("_symlink_format_manifest/", "summary", "Delta Lake, Hudi, for Presto, Athena and Hive"),
    # docs.databricks.com/archive/legacy/dbio-commit.html. Each names only the files of its own transaction.
    Mark("_committed_*", "marker", "Databricks DBIO"),
    Mark("_started_*", "marker", "Databricks DBIO"),
    Mark("_spark_metadata/", "sink log", "the file sink of Spark's structured streaming"),
    Mark("_delta_log/", "table", "Delta Lake"),
    Mark(".hoodie/", "table", "Hudi"),
    Mark("metadata/", "table", "Iceberg", ("version-hint.text", "*.metadata.json")),
    # paimon.apache.org/docs/master/concepts/basic-concepts
    Mark("schema/", "table", "Paimon", ("schema-[0-9]*",)),
    # lancedb.github.io/lance/format/table
    Mark("_versions/", "table", "Lance", ("*.manifest",)),
    # ducklake.select/docs/stable/duckdb/usage/paths: its catalog lies elsewhere, the names of data files tell.
    Mark("ducklake-*.parquet", "table", "DuckLake"),
)
"""The table."""

_EXACT: Final = {mark.name: mark for mark in MARKS if "*" not in mark.name}
_PATTERNS: Final = tuple(mark for mark in MARKS if "*" in mark.name)
_PREFIXES: Final = tuple(mark.name.partition("*")[0] for mark in _PATTERNS)
_SUMMARY_FILES: Final = tuple(mark.name for mark in MARKS if mark.kind == "summary" and mark.name[-1] != "/")
SUMMARY_NAMES: Final = (*_SUMMARY_FILES, *(f".{name}.crc" for name in _SUMMARY_FILES))
"""Names of single files that summarise a directory, and of their checksums."""


def checksummed(name: str) -> str:
    """The name of the file whose checksum a file of this name holds; empty where it holds none."""
    return name[1:-4] if name[:1] == "." and name.endswith(".crc") else ""


def mark_of(child: FileStatus) -> Mark | None:
    """The row of an entry by its own name; that of a file, for its checksum. A link has none."""
    if child.is_link:
        return None
    name = child.path.name
    if child.is_directory:
        return _EXACT.get(f"{name}/")
    name = checksummed(name) or name
    if name.startswith(_PREFIXES):
        return next((mark for mark in _PATTERNS if fnmatchcase(name, mark.name)), None)
    return _EXACT.get(name)


def is_replaced(child: FileStatus) -> bool:
    """Whether an overwrite of the whole destination replaces it although its name is hidden."""
    mark = mark_of(child)
    return mark is not None and mark.kind != "table"


@dataclass(slots=True)
class RootView:
    """What a destination holds.

    Attributes:
        used: Whether anything but working directories of committers is there.
        visible: Whether anything is there that readers do not pass over.
        marks: Metadata of other writers, with its row.
    """

    used: bool = False
    visible: bool = False
    marks: list[tuple[Mark, FileStatus]] = field(default_factory=list)

    def of(self, kinds: Iterable[Kind]) -> list[tuple[Mark, FileStatus]]:
        """Those of some kinds."""
        return [(mark, status) for mark, status in self.marks if mark.kind in kinds]


async def look_at_root(store: Store, destination: StorePath) -> RootView:
    """Looks at the first thousand children of a destination, and looks up known names where there are more.

    One listing, and one of each directory that may be a table's; of a destination with more children one look a row.

    Raises:
        StoreNotFoundError: Nothing is there, on a store whose directories are real.
        StoreNotADirectoryError: A file is there.
    """
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
    """What refuses a job, and what to do; None where nothing does.

    Args:
        view: What the destination holds.
        whole: Whether the job replaces all of it.
    """
    for mark, _status in view.of(("table",)):
        problem = (
            f"the destination is a {mark.writer} table ({mark.name} is there): its readers go by its own log, and "
            "would not see what is written here or miss what is replaced"
        )
        return problem, (f"write it with {mark.writer}, or give a directory of its own")
    if not whole and view.of(("sink log",)):
        problem = (
            "the destination holds _spark_metadata, the log of the file sink of Spark's structured streaming: Spark "
            "reads only files that this log names, and would not see what is written here"
        )
        return problem, ("overwrite the whole destination, which replaces the log too; or write into another directory")
    return None
