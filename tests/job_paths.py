"""Finds what lies in the directory of a job: the one place in the tests that knows how that is named.

A test that has the job uses its layout (`spec.layout`) instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias, overload

from committer.file_names import MAGIC_JOB, job_id_in
from committer.layout import COMMITTING, TEMPORARY, DirectoryName
from committer.records.job_state import Entry, encode_record

INTENT = "intent-driver"
"""The name of an intent in the job's directory."""

KEPT = {"kept", "opened"}
"""The names in the directory of a committed job whose outcome is kept."""


class HasFiles(Protocol):
    """A destination that a test looks at past the store."""

    def all_files(self) -> dict[str, bytes]:
        """Every file below the destination, by relative name."""


Names: TypeAlias = HasFiles | Iterable[str]
"""A destination, or the names of the files and directories there."""


def unique_id(at: Path | Names, job_id: str) -> str:
    """Returns the name of a job's directory; of a job that has none there, one that it could have.

    Of several directories of one id the last by name; one that is being made or removed does not count.
    """
    if isinstance(at, Path):
        names = [child.name for child in (at / TEMPORARY).iterdir()] if (at / TEMPORARY).is_dir() else []
        beside = [child.name for child in at.iterdir()] if at.is_dir() else []
    else:
        files = list(at if isinstance(at, Iterable) else at.all_files())
        names = [
            rest.partition("/")[0] for _above, found, rest in (f.partition(f"{TEMPORARY}/") for f in files) if found
        ]
        beside = [rest.partition("/")[0] for _above, found, rest in (f.partition(MAGIC_JOB) for f in files) if found]
        beside = [f"{MAGIC_JOB}{name}" for name in beside]
    names += [name.removeprefix(MAGIC_JOB) for name in beside if name.startswith(MAGIC_JOB)]
    found = [DirectoryName.of(name) for name in set(names)]
    setups = sorted(one.setup for one in found if one.job_id == job_id and not one.suffix)
    # A job of Hadoop's has its bare id.
    return job_id if "" in setups and len(setups) == 1 else f"{job_id}~{setups[-1] if setups else 'none'}"


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
    return any(in_job(at, job_id).glob("intent-*"))


def entries_at(at: Names, job_id: str = "") -> list[str]:
    """The names of the entries of a job, or of all jobs."""
    names = at if isinstance(at, Iterable) else at.all_files()
    above = f"{TEMPORARY}/{COMMITTING}/"
    return sorted(name for name in names if name.startswith(f"{above}{job_id}~" if job_id else above) and "~" in name)


def entry_of(job_id: str, setup: str = "", *, replaces: bool = True) -> tuple[str, bytes]:
    """The name, relative to the destination, and the content of an entry of a job that replaces all, or appends."""
    owner = f"{job_id}~{setup}" if setup else job_id
    when = "2026-11-21T00:00:00+00:00"
    entry = Entry(job_id=job_id, setup=setup, driver="dead", created=when, writes=("",), replaces=("",) * replaces)
    return f"{TEMPORARY}/{COMMITTING}/{owner}~dead.{'replace' if replaces else 'append'}", encode_record(entry)


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
    return sorted(job_id_in(child.name) for child in (destination / TEMPORARY).iterdir() if child.name != COMMITTING)
