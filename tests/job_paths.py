"""Finds what lies in the directory of a job: the one place in the tests that knows how that is named.

A test that has the job uses its layout (`spec.layout`) instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias, overload

from committer.file_names import MAGIC_JOB, job_id_in
from committer.layout import TEMPORARY

INTENT = "intent"
"""The name of an intent in the job's directory, that of its first driver."""

KEPT = {"outcome"}
"""The names in the directory of a committed job whose outcome is kept."""


class HasFiles(Protocol):
    """A destination that a test looks at past the store."""

    def all_files(self) -> dict[str, bytes]:
        """Every file below the destination, by relative name."""


Names: TypeAlias = HasFiles | Iterable[str]
"""A destination, or the names of the files and directories there."""


def unique_id(at: Path | Names, job_id: str) -> str:
    """Returns the name of a job's directory; of a job that was not set up there, one that it could have."""
    return job_id


@overload
def in_job(at: Path, job_id: str, below: str = "") -> Path: ...
@overload
def in_job(at: Names, job_id: str, below: str = "", *, above: str = "") -> str: ...
def in_job(at: Path | Names, job_id: str, below: str = "", *, above: str = "") -> Path | str:
    """Returns the path of a job's directory, or of something in it, whether that exists or not.

    Args:
        at: The destination, on a disk as a path.
        job_id: The job's id.
        below: The name in the job's directory; empty for the directory itself.
        above: What names begin with that are not relative to the destination, with a slash at the end.
    """
    name = f"{TEMPORARY}/{unique_id(at, job_id)}/{below}".rstrip("/")
    return at / name if isinstance(at, Path) else f"{above}{name}"


def has_in_job(at: Path | Names, job_id: str, below: str, *, above: str = "") -> bool:
    """Whether something of that name exists in a job's directory; where only files are looked at, a file."""
    if isinstance(at, Path):
        return in_job(at, job_id, below).exists()
    names = at if isinstance(at, Iterable) else at.all_files()
    return in_job(names, job_id, below, above=above) in names


def has_intent(at: Path, job_id: str) -> bool:
    """Whether a driver of a job said that it commits it."""
    return any(in_job(at, job_id).glob(f"{INTENT}*"))


def kept_of(at: Path | Names, job_id: str) -> set[str]:
    """The names of what a committed job leaves whose outcome is kept, those of directories among them."""
    directory = f"{TEMPORARY}/{unique_id(at, job_id)}"
    return {TEMPORARY, directory, *(f"{directory}/{name}" for name in KEPT)}


def is_of_job(name: str, job_id: str) -> bool:
    """Whether that is the name of a job's directory, in `_temporary` or among the output, or of something in it."""
    above, _slash, below = name.partition("/")
    if above == TEMPORARY:
        return job_id_in(below.partition("/")[0]) == job_id
    return above.startswith(MAGIC_JOB) and job_id_in(above.removeprefix(MAGIC_JOB)) == job_id


def in_magic(at: Path | Names, job_id: str, below: str = "") -> str:
    """Returns the name of the directory of the magic committer's first attempt of a job, or of something in it."""
    name = unique_id(at, job_id)
    return f"{MAGIC_JOB}{name}/job-{name}/00/{below}".rstrip("/")


def jobs_at(destination: Path) -> list[str]:
    """The ids of the jobs that have a directory there, sorted."""
    return sorted(job_id_in(child.name) for child in (destination / TEMPORARY).iterdir())
