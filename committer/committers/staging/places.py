"""Directories where task attempts keep files on their machine until they commit. All functions block.

Below the directory of `CommitterConfig.staging_directories` with the most free space, or the system's temporary
directory::

    committer-<user>/<job id>-<digest>-<setup>/<attempt>-<nonce>/opened/<number>   files of `TaskAttempt.open`
    committer-<user>/<job id>-<digest>-<setup>/<attempt>-<nonce>/files/…           files written through `work_path`

The digest is of the destination, so that jobs of one id at two destinations share no directory. Only this user
can enter the first one: others may write to the system's temporary directory, too.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from committer.errors import TaskError
from committer.layout import JobLayout
from committer.logs import job_logger
from committer.options.config import CommitterConfig

OPENED: Final = "opened"
FILES: Final = "files"

_log = job_logger("committer.committers")

# A further try follows if another process removed a directory that it found empty.
_TRIES: Final = 10


def make_run(config: CommitterConfig, layout: JobLayout, run: str) -> str:
    """Creates the directory of one run of a task attempt where there is most free space; returns its path."""
    failures: list[OSError] = []
    try:
        bases = sorted(_bases(config), key=_room_in, reverse=True)
    except OSError as error:
        # The machine has no writable temporary directory.
        bases, failures = [], [error]
    for base in bases:
        try:
            return _make(base, _of_job(layout), run)
        except OSError as error:
            failures.append(error)
    raise TaskError(
        f"no directory of this machine takes the files of a task attempt: {failures[0]}",
        operation="open",
        path=run,
        causes=failures,
        next_step="make room there, or name directories in staging_directories (fs.s3a.buffer.dir) that this user may "
        "write to",
    ) from failures[0]


def remove_run(place: str) -> None:
    """Removes the directory of one run, and parents that are empty then."""
    job, gone = os.path.dirname(place), f"{place}.gone"
    with suppress(OSError):
        # Renamed at once: a committing attempt must not take a half-deleted directory for all that it wrote.
        os.rename(place, gone)
    shutil.rmtree(gone, ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)
    _remove_empty(job, os.path.dirname(job))


def stands(place: str) -> bool:
    """Returns whether a run's directory is still the one created for it; programs know, and recreate, only `FILES`."""
    return os.path.isdir(os.path.join(place, OPENED))


def remove_runs(config: CommitterConfig, layout: JobLayout, attempt_id: str, nonce: str | None) -> None:
    """Removes one run's files of a task attempt from this machine; without a nonce, those of all its runs."""
    for job in _jobs(config, layout):
        for run in _names_in(job):
            if run == f"{attempt_id}-{nonce}" if nonce else run.startswith(f"{attempt_id}-"):
                remove_run(os.path.join(job, run))


def remove_job(config: CommitterConfig, layout: JobLayout) -> None:
    """Removes the files of a finished job's task attempts from this machine."""
    for job in _jobs(config, layout):
        for run in _names_in(job):
            _log.debug("removing %s, which a task attempt that never ended left", os.path.join(job, run))
        shutil.rmtree(job, ignore_errors=True)
        _remove_empty(os.path.dirname(job))


def _bases(config: CommitterConfig) -> list[str]:
    return [*config.staging_directories] or [tempfile.gettempdir()]


def _room_in(directory: str) -> int:
    while True:
        try:
            found = os.statvfs(directory)
        except FileNotFoundError:
            # Not created yet.
            directory = os.path.dirname(directory)
        except OSError:
            return -1
        else:
            return found.f_bavail * found.f_frsize


def _make(base: str, job: str, run: str) -> str:
    os.makedirs(base, exist_ok=True)
    own = os.path.join(base, _own_name())
    place = os.path.join(own, job, run)
    for tries_left in reversed(range(_TRIES)):
        try:
            os.makedirs(own, mode=0o700, exist_ok=True)
            if not _is_ours(os.lstat(own)):
                raise PermissionError(f"{own} is another user's, or others can write to it")
            os.chmod(own, 0o700)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.mkdir(place)
            os.mkdir(os.path.join(place, OPENED))
            os.mkdir(os.path.join(place, FILES))
        except (FileNotFoundError, FileExistsError):
            # `os.makedirs` raises it if a directory that it found vanishes at once.
            if not tries_left:
                raise
        else:
            break
    return place


def _jobs(config: CommitterConfig, layout: JobLayout) -> Iterator[str]:
    # Without a setup's name a job cannot be told from another one of its id.
    if not layout.setup_name:
        return
    try:
        bases = _bases(config)
    except OSError:
        # A machine without a temporary directory ran no task.
        return
    for base in bases:
        own = os.path.join(base, _own_name())
        if _is_own(own):
            yield os.path.join(own, _of_job(layout))


def _own_name() -> str:
    return f"committer-{os.geteuid()}"


def _of_job(layout: JobLayout) -> str:
    return f"{layout.unique_name}-{layout.setup_name}"


def _is_own(directory: str) -> bool:
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return _is_ours(found)


def _is_ours(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _names_in(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _remove_empty(*directories: str) -> None:
    for directory in directories:
        try:
            os.rmdir(directory)
        except OSError:
            return
