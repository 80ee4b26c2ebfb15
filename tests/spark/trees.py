"""What stands below a directory, told apart from what Spark and the engine put beside it."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def everything(root: Path) -> set[str]:
    """Every file and directory, checksum sidecars of Hadoop's local file system apart."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.name.endswith(".crc")}


def data_files(root: Path) -> list[Path]:
    """The Parquet files in place."""
    return sorted(path for path in root.rglob("*.parquet") if "_temporary" not in path.parts)


def names_without_uuid(root: Path) -> list[str]:
    """The Parquet files' names, and `_SUCCESS`, with every UUID masked."""
    files = [*data_files(root), *root.glob("_SUCCESS")]
    return sorted(_UUID.sub("<uuid>", str(path.relative_to(root))) for path in files)


def uuids(root: Path) -> set[str]:
    """The UUIDs in the files' names."""
    return {uuid for path in data_files(root) for uuid in _UUID.findall(path.name)}


def rows_by_directory(root: Path, column: str) -> dict[str, list[int]]:
    """Sorted values of a column, by directory."""
    found: dict[str, list[int]] = {}
    for path in data_files(root):
        values = pq.ParquetFile(path).read([column]).column(column).to_pylist()
        found.setdefault(str(path.parent.relative_to(root)), []).extend(values)
    return {directory: sorted(values) for directory, values in found.items()}
