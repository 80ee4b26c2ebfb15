"""Rules for names of files and of partition directories."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from committer.errors import InvalidPathError

BAD_SEGMENT: Final = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)")

MAGIC_JOB: Final = "__magic_job-"
"""Prefix of the directory names of S3A's magic committer, before the job's id."""

# The directories of committers (FileOutputCommitter's PENDING_DIR_NAME; S3A's MagicCommitPaths, before Hadoop
# 3.4.0 and since), in any case, since some disks ignore it. A name with such a prefix is allowed:
# `_temporary_id=1` is a partition.
_WORKING: Final = rf"(?:_temporary(?=/|\Z)|__magic(?=/|\Z)|{MAGIC_JOB}[^/]*)"
_WORKING_DIRECTORY: Final = re.compile(rf"(?:\A|/)({_WORKING})", re.IGNORECASE)
_RESERVED_SEGMENT: Final = re.compile(rf"/(_SUCCESS(?=/|\Z)|{_WORKING})", re.IGNORECASE)
_GIVE_ANOTHER: Final = (
    "give another name: _SUCCESS says that a job committed, and jobs work in _temporary, __magic and __magic_job-*"
)
# A UUID, or the nonce of a job's setup (`committer.stages.setup.setup_job.SETUP_BYTES`).
_USED_ONCE: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|-[0-9a-f]{20}(?![0-9a-f])")
_MARKER: Final = re.compile(r"_SUCCESS(?=/|\Z)", re.IGNORECASE)


def check_file_name(name: str) -> str:
    """Returns `name` if it may be the destination of a file, relative to the job's destination.

    Raises:
        InvalidPathError: A store cannot hold it (see `check_relative`), it is not valid Unicode, or it has a reserved
            segment: ``_SUCCESS`` as its first, or a working directory at any depth, since jobs may write below.
    """
    check_relative(name)
    reserved = _reserved_in(name)
    if reserved:
        raise InvalidPathError(
            f"a file name has the segment {reserved}, which commits own", path=name, next_step=_GIVE_ANOTHER
        )
    _check_unicode(name)
    return name


def is_file_name(name: object) -> bool:
    """Returns whether `check_file_name` accepts a value."""
    try:
        return isinstance(name, str) and check_file_name(name) == name
    except InvalidPathError:
        return False


def check_absolute_name(name: str, roots: Collection[str]) -> str:
    """Returns `name`, an absolute path, if it may be the destination of a file outside the job's destination.

    Raises:
        InvalidPathError: It is strictly below none of `roots` (none of which is below another), a store cannot
            hold it, or a segment below its root is ``_SUCCESS`` or a working directory: other jobs may write to
            any directory there.
    """
    check_relative(name[1:])
    root = root_of(name, roots)
    if root is None:
        raise InvalidPathError(
            f"{name!a} lies outside the destination, and below none of the roots that were given",
            path=ascii(name),
            next_step="give a path below the destination, or name its root in absolute_roots",
        )
    reserved = _RESERVED_SEGMENT.search(name, len(root))
    if reserved is not None:
        raise InvalidPathError(
            f"a path has a segment {reserved[1]}, which commits own", path=ascii(name), next_step=_GIVE_ANOTHER
        )
    _check_unicode(name)
    return name


def check_destination_name(name: str, roots: Collection[str]) -> str:
    """Returns a name that may be the destination of a file, relative or absolute; raises as the two above."""
    return check_absolute_name(name, roots) if name[:1] == "/" else check_file_name(name)


def check_relative(name: str) -> None:
    """Refuses a name that no store can hold: no text, empty, absolute, with an empty, ``.`` or ``..`` segment
    or a NUL.
    """
    if not isinstance(name, str):
        raise InvalidPathError(
            f"a file's name is a str, not a {type(name).__name__}",
            next_step="give a name relative to the destination, such as 'year=2026/part-00000.csv'",
        )
    if name and name[0] not in "./" and name[-1] != "/" and "/." not in name and "//" not in name and "\0" not in name:
        return
    if BAD_SEGMENT.search(name) or "\0" in name:
        raise InvalidPathError(
            f"a relative name {_fault_of(name)}",
            path=ascii(name),
            next_step="give a name relative to the destination, such as 'year=2026/part-00000.csv'",
        )


def _check_unicode(name: str) -> None:
    if not is_utf_8(name):
        raise InvalidPathError(
            "a file name is not valid Unicode", path=ascii(name), next_step="give a name that UTF-8 can encode"
        )


def is_utf_8(name: str) -> bool:
    """Returns whether a record can hold a name: on a local disk it may contain bytes that are no text."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def root_of(name: str, roots: Collection[str]) -> str | None:
    """Returns the root that an absolute path is strictly below; None without one."""
    parent = name.rpartition("/")[0]
    while parent and parent not in roots:
        parent = parent.rpartition("/")[0]
    return parent or None


def working_directory_in(name: str) -> str:
    """Returns the first segment that is a committer's working directory, the one rule for what belongs to jobs;
    or "".
    """
    found = _WORKING_DIRECTORY.search(name) if "_" in name else None
    return found[1] if found is not None else ""


def job_id_in(directory: str) -> str:
    """Returns the id of the job whose directory in `_temporary` has this name: the inverse of `JobLayout.unique_id`."""
    return directory.partition("~")[0]


def unique_name(name: str, token: str) -> str:
    """Inserts a job's token before a file name's first period: ``a=1/p-0.csv`` -> ``a=1/p-0-<token>.csv``."""
    directory, slash, file_name = name.rpartition("/")
    stem, period, extension = file_name[1:].partition(".")
    return f"{directory}{slash}{file_name[0]}{stem}-{token}{period}{extension}"


def is_used_once(name: str) -> bool:
    """Returns whether a file's name contains a UUID, or the nonce of a job's setup: no writer uses it again."""
    return _USED_ONCE.search(name.rpartition("/")[2]) is not None


def reserved_part(path: str) -> int:
    """Finds the first working directory or marker of jobs in an absolute path: the index of its slash, or -1."""
    found = _RESERVED_SEGMENT.search(path)
    return found.start() if found is not None else -1


def is_reserved(name: str) -> bool:
    """Returns whether a name, relative to a destination, is reserved: see `check_file_name`."""
    return bool(_reserved_in(name))


def may_be_reserved(names: list[str]) -> bool:
    """Returns whether any of many relative names may be `is_reserved`, without a look at each; False is certain."""
    return "\n_" in (text := "\n".join(("", *names))) or "/_" in text


def working_part(path: str) -> int:
    """Finds the first working directory in an absolute path: the index of its slash, or -1."""
    found = _WORKING_DIRECTORY.search(path) if "/_" in path else None
    return found.start() if found is not None else -1


def _reserved_in(name: str) -> str:
    if name[:1] != "_" and "/_" not in name:
        return ""
    marker = _MARKER.match(name)
    return marker[0] if marker is not None else working_directory_in(name)


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


HIVE_DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_HIVE_ESCAPED: Final = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\[\\\\\\]^{]")
_HIVE_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")


def escape_path_name(text: str) -> str:
    """Escapes a partition column or value for a directory name, as Hive and Spark do."""
    return _HIVE_ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape_path_name(text: str) -> str:
    """Undoes `escape_path_name`. A percent sign without two hex digits stays unchanged."""
    return _HIVE_ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def partition_directory(partition: Iterable[tuple[str, str | None]]) -> str:
    """Returns the escaped directory name of a partition, such as ``year=2026/at=10%3A00``, outermost column first.

    None and the empty string both read back as null.
    """
    names = []
    for column, value in partition:
        if not column:
            raise InvalidPathError("a partition column has no name", next_step="give every partition column a name")
        names.append(f"{escape_path_name(column)}={escape_path_name(value) if value else HIVE_DEFAULT_PARTITION}")
    return "/".join(names)
