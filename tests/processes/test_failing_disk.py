"""A disk that refuses system calls: what the error says is true, and its advice works."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import committer
from committer import CommitterConfig, CommitterError
from committer.errors import JobUndecidedError, TargetExistsError
from committer.flow.runtime import use_runtime
from tests.guarantees.cluster import Impatient
from tests.job_paths import has_in_job, has_intent
from tests.processes.harness import visible
from tests.processes.system_calls import CHANGES, met

pytestmark = pytest.mark.allow_blocking("looks at the disk itself")

FSYNC = CommitterConfig(durability="fsync")
FILES = {"a": b"a", "b/c": b"c"}


class Refusing:
    """Refuses a system call with an error: the `number`th that is meant, and later ones too unless `once`."""

    def __init__(self, number: int, error: int, meant: Callable[[str, tuple[Any, ...]], bool], *, once: bool) -> None:
        self.number = number
        self.error = error
        self.meant = meant
        self.once = once
        self.seen = 0
        self.works = True

    def __call__(self, name: str, args: tuple[Any, ...]) -> None:
        if self.works or not self.meant(name, args):
            return
        self.seen += 1
        if self.seen == self.number or (self.seen > self.number and not self.once):
            raise OSError(self.error, os.strerror(self.error))


def is_sync_of_directory(name: str, args: tuple[Any, ...]) -> bool:
    return name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)


def is_change(name: str, args: tuple[Any, ...]) -> bool:
    if name == "open":
        return bool(args[1] & os.O_CREAT)
    return name in (*CHANGES, "rename_no_replace")


async def _prepare(destination: Path, config: CommitterConfig) -> committer.Job:
    job = await committer.open_job(destination, job_id="J", config=config)
    for task, (name, data) in enumerate(FILES.items()):
        async with job.task_attempt(task) as attempt, attempt.open(name) as file:
            await file.write(data)
    return job


async def _follow(step: str) -> None:
    """Does what an error advises: the first call of the API that it names."""
    found = re.search(r"committer\.(?:recover|cleanup)\([^)]*\)", step)
    assert found, step
    await eval(found[0], {"committer": committer, "CommitterConfig": CommitterConfig})


async def _commit_on(destination: Path, config: CommitterConfig, refusing: Refusing) -> CommitterError | None:
    job = await _prepare(destination, config)
    refusing.works = False
    try:
        await job.commit()
    except CommitterError as error:
        return error
    finally:
        refusing.works = True
        await job.close()
    return None


def _stands(destination: Path, record: str) -> bool:
    return has_in_job(destination, "J", record)


async def _check(destination: Path, error: CommitterError) -> None:
    """Holds an error to what stands on the disk, and follows its advice."""
    decided = _stands(destination, "decision")
    if error.outcome == "unchanged":
        assert not decided
        assert visible(destination) == {}
        assert not has_intent(destination, "J")
        with pytest.raises(JobUndecidedError):
            await committer.recover(destination, "J")
        async with committer.attach_job(destination, job_id="J") as job:
            await job.commit()
    else:
        assert "next step" in str(error)
        await _follow(error.next_step)
    assert visible(destination) == FILES
    assert (destination / "_SUCCESS").exists()
    assert not (destination / "_temporary").exists()
    assert (await committer.validate(destination)).ok


async def _sweep(tmp_path: Path, make: Callable[[int], Refusing], config: CommitterConfig) -> int:
    """Each call once; how many runs failed."""
    failed = 0
    for number in count(1):
        refusing = make(number)
        destination = tmp_path / f"{number}/o"
        # What is tried again waits for nothing meanwhile.
        with met(refusing), use_runtime(Impatient(1)):
            error = await _commit_on(destination, config, refusing)
        if refusing.seen < number:
            assert error is None
            return failed
        if error is not None:
            failed += 1
            try:
                await _check(destination, error)
            except BaseException as wrong:
                wrong.add_note(f"call {number}: {error!r} {error}")
                raise
    raise AssertionError


@pytest.mark.parametrize("once", [True, False], ids=["once", "from then on"])
@pytest.mark.parametrize("number", ["ENOSPC", "EIO", "EINVAL"])
async def test_directory_cannot_be_forced_to_the_disk(tmp_path: Path, number: str, once: bool) -> None:
    def make(at: int) -> Refusing:
        return Refusing(at, getattr(errno, number), is_sync_of_directory, once=once)

    failed = await _sweep(tmp_path, make, FSYNC)
    # A failure that is not known to be for good is tried again.
    assert failed > 2 or (once and number == "EIO")


@pytest.mark.parametrize(
    "number", ["ENOSPC", pytest.param("EROFS", marks=pytest.mark.slow), pytest.param("EIO", marks=pytest.mark.slow)]
)
async def test_disk_that_refuses_from_then_on(tmp_path: Path, number: str) -> None:
    def make(at: int) -> Refusing:
        return Refusing(at, getattr(errno, number), is_change, once=False)

    assert await _sweep(tmp_path, make, CommitterConfig()) > 10


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["none", "fsync"])
@pytest.mark.parametrize("number", ["ENOSPC", "EROFS", "EIO", "EACCES", "EMFILE", "ENOMEM"])
async def test_one_refusal(tmp_path: Path, number: str, durability: Any) -> None:
    def make(at: int) -> Refusing:
        return Refusing(at, getattr(errno, number), is_change, once=True)

    await _sweep(tmp_path, make, CommitterConfig(durability=durability))


def _takes_away(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a call deletes."""
    return name in ("unlink", "rmdir")


@pytest.mark.parametrize("way", ["recover", "abort", "command line"])
async def test_undecided_job_is_ended_as_its_error_says(tmp_path: Path, way: str) -> None:
    """The disk is read-only when a refused commit takes its intent back."""
    destination = tmp_path / "o"
    destination.mkdir()
    (destination / "a").write_bytes(b"another's")
    refusing = Refusing(1, errno.EROFS, _takes_away, once=False)
    with met(refusing):
        error = await _commit_on(destination, CommitterConfig(), refusing)
    assert isinstance(error, TargetExistsError)
    assert error.outcome == "unknown"
    assert "a recovery would commit job J" in error.message
    step = error.next_step
    if way == "recover":
        (destination / "a").unlink()
        await _follow(step)
        assert visible(destination) == FILES
        return
    call = re.search(r"`await (committer\.recover\([^`]*rollback=True\))`", step)
    assert call, step
    if way == "abort":
        await eval(call[1], {"committer": committer})
    else:
        told = subprocess.run(
            [sys.executable, "-m", "committer.cli", "recover", str(destination), "J", "--rollback", "--yes"],
            capture_output=True,
            check=False,
        )
        assert told.returncode == 0, told.stderr
    assert not (destination / "_temporary").exists()
    assert visible(destination) == {"a": b"another's"}
