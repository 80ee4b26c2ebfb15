"""Names of partition directories, as Hive and Spark write them: ``year=2026/at=10%3A00``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from committer.errors import InvalidPathError

HIVE_DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_HIVE_ESCAPED: Final = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\[\\\\\\]^{]")
_HIVE_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")


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
            raise InvalidPathError("a partition column has no name", next_step="give every partition column a name")
        names.append(f"{escape_path_name(column)}={escape_path_name(value) if value else HIVE_DEFAULT_PARTITION}")
    return "/".join(names)
