"""Links that another user put in the place of a job's directories and records: never followed (G10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import committer
from committer import CommitterConfig, Job
from committer.api.cleanup import clean_and_report
from committer.errors import CommitterError, StoreLinkError
from committer.testing.faults import Fault
from tests.job_paths import in_job
from tests.places import DiskPlace, write_file

REPLACING = CommitterConfig(conflict_mode="replace")
OLD = {"a=1/old": b"old"}
NEW = {"a=1/new": b"new", "b=1/new": b"more"}

JOB = "JOB"
DIRECTORIES = (
    "_temporary",
    JOB,
    f"{JOB}/00",
    f"{JOB}/00/tasks",
    f"{JOB}/work/tasks-fenced",
    f"{JOB}/00/manifests",
    f"{JOB}/00/attempts",
    f"{JOB}/00/uploads",
    f"{JOB}/work/superseded",
    f"{JOB}/work/superseded-fenced",
    f"{JOB}/00/tasks/*",
    f"{JOB}/00/tasks/*/a=1",
)
RECORDS = (
    f"{JOB}/setup",
    f"{JOB}/intent-*",
    f"{JOB}/decision",
    f"{JOB}/outcome",
    f"{JOB}/00/manifests/*.json",
    f"{JOB}/00/attempts/*.json",
    f"{JOB}/plan-*",
    f"{JOB}/00/tasks/*/a=1/*",
)
# Where the link is seen before anything of the job is changed.
PROTOCOL = [name for name in (*DIRECTORIES, *RECORDS) if "*" not in name.replace("work", "")]


@pytest.fixture
def disk(tmp_path: Path) -> DiskPlace:
    return DiskPlace(tmp_path)


def every_bit(directory: Path) -> dict[str, object]:
    """All that can be said of what is below a directory, and of itself."""
    found: dict[str, object] = {}
    for path in (directory, *directory.rglob("*")):
        own = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        kind, times = (own.st_mode, own.st_ino, own.st_nlink, own.st_uid), (own.st_mtime_ns, own.st_ctime_ns)
        found[str(path)] = (*kind, *times, content)
    return found


class Intruder:
    """Puts links where the job has its own things, which live on outside, so that a link leads to what is expected.

    Attributes:
        outside: Where they lead; nothing in it may ever change.
    """

    def __init__(self, disk: DiskPlace, directory: Path) -> None:
        self.disk = disk
        self.outside = directory / "outside"
        self.outside.mkdir()
        self.planted: list[tuple[Path, Path, bool]] = []

    def plant(self, pattern: str) -> str:
        """Plants a link at every place of a pattern; returns the pattern with the job's own name for `JOB`."""
        root = self.disk.root
        pattern = pattern.replace(JOB, in_job(self.disk, "job-1"))
        found = sorted(root.glob(pattern)) if "*" in pattern else [root / pattern]
        for number, place in enumerate(found):
            leads_to = self.outside / f"{number}"
            stood = place.exists()
            if stood:
                place.rename(leads_to)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                leads_to.mkdir()
            if leads_to.is_dir():
                # What a follower would read, rename, or delete.
                for name in ("setup", "decision", "precious", ".hidden", "00/tasks/x/precious", "00000000"):
                    path = leads_to / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    if not path.exists():
                        path.write_bytes(b"precious")
                leads_to.chmod(0o750)
            place.symlink_to(leads_to)
            self.planted.append((place, leads_to, stood))
        return pattern

    def _tidy(self, directory: Path) -> None:
        for path in sorted(directory.rglob("*"), reverse=True) if directory.is_dir() else []:
            if path.is_file() and path.read_bytes() == b"precious":
                path.unlink()
            elif path.name == "x":
                path.rmdir()

    def undo(self) -> None:
        """What the error advises, by an administrator who knows where the directory went."""
        for place, leads_to, stood in self.planted:
            if place.is_symlink():
                place.unlink()
                if stood:
                    self._tidy(leads_to)
                    leads_to.rename(place)


async def open_job(disk: DiskPlace, delivery: Literal["listing", "message"]) -> tuple[Job, list[committer.TaskCommit]]:
    for name, data in OLD.items():
        disk.write(name, data)
    job = await disk.open_job(job_id="job-1", config=REPLACING, delivery=delivery)
    messages = [await disk.run_task(job, 0, NEW), await disk.run_task(job, 1, {"a=1/second": b"second"})]
    return job, messages


async def begun(disk: DiskPlace) -> None:
    """A job that died when it was half published."""
    job, _messages = await open_job(disk, "listing")
    disk.faults(Fault(kind="forbidden", operation="rename_file", path="b=1/new", times=1))
    with pytest.raises(CommitterError):
        await job.commit()
    await job.close()
    disk.store.faults.clear()


Act = Callable[[DiskPlace], Awaitable[object]]


async def attach_and_abort(disk: DiskPlace) -> None:
    async with disk.attach_job("job-1") as job:
        await job.abort()


async def attach_and_plan(disk: DiskPlace) -> None:
    async with disk.attach_job("job-1") as job:
        await job.plan()


async def attach_and_commit(disk: DiskPlace) -> None:
    async with disk.attach_job("job-1") as job:
        await job.commit()


async def look(disk: DiskPlace) -> None:
    await clean_and_report(disk.dest, dry=True, older_than=0, force=True)
    await committer.list_jobs(disk.dest)
    await committer.validate(disk.dest)


ACTS: dict[str, Act] = {
    "cleanup-all": lambda disk: committer.cleanup(disk.dest, older_than=0),
    "cleanup-all-force": lambda disk: committer.cleanup(disk.dest, older_than=0, force=True),
    "cleanup": lambda disk: committer.cleanup(disk.dest, job_id="job-1"),
    "cleanup-force": lambda disk: committer.cleanup(disk.dest, job_id="job-1", force=True),
    "abort": attach_and_abort,
    "commit": attach_and_commit,
    "recover": lambda disk: disk.recover("job-1", force=True),
    "rollback": lambda disk: disk.recover("job-1", rollback=True, force=True),
    "plan": attach_and_plan,
    "look": look,
}


QUICK = ("cleanup-all-force", "abort", "rollback")


def nothing_foreign(disk: DiskPlace, intruder: Intruder) -> None:
    """What a reader sees is the old files or the job's, and none of them is a link."""
    for path in disk.root.rglob("*"):
        name = path.relative_to(disk.root).as_posix()
        if name.startswith("_temporary"):
            continue
        assert not path.is_symlink(), name
        if path.is_file() and name != "_SUCCESS":
            assert path.read_bytes() in (b"old", b"new", b"more", b"second"), name


SLOW = pytest.mark.slow


@pytest.mark.parametrize("act", [pytest.param(act, marks=[] if act in QUICK else SLOW) for act in ACTS])
@pytest.mark.parametrize("state", [pytest.param("open", marks=SLOW), "begun", pytest.param("message", marks=SLOW)])
@pytest.mark.parametrize("place", [*DIRECTORIES, *RECORDS])
async def test_no_link_is_followed(disk: DiskPlace, tmp_path: Path, place: str, state: str, act: str) -> None:
    if state == "begun":
        await begun(disk)
    else:
        job, _messages = await open_job(disk, "listing" if state == "open" else "message")
        await job.close()
    intruder = Intruder(disk, tmp_path)
    intruder.plant(place)
    before = every_bit(intruder.outside)
    try:
        await ACTS[act](disk)
    except CommitterError as error:
        assert error.message
        assert error.outcome in ("unchanged", "partial", "committed", "unknown")
    assert every_bit(intruder.outside) == before
    nothing_foreign(disk, intruder)


@pytest.mark.parametrize("delivery", ["listing", "message"])
@pytest.mark.parametrize("place", [*DIRECTORIES, *RECORDS])
async def test_a_commit_stops_at_a_link_and_goes_on_without_it(
    disk: DiskPlace, tmp_path: Path, place: str, delivery: Literal["listing", "message"]
) -> None:
    """The error's advice, followed to the letter."""
    job, messages = await open_job(disk, delivery)
    intruder = Intruder(disk, tmp_path)
    intruder.plant(place)
    before = every_bit(intruder.outside)
    report = None
    try:
        report = await job.commit(messages)
    except CommitterError as error:
        assert every_bit(intruder.outside) == before
        if isinstance(error, StoreLinkError):
            assert "remove the link by hand" in error.next_step
    assert every_bit(intruder.outside) == before
    nothing_foreign(disk, intruder)
    await job.close()
    intruder.undo()
    if report is None:
        async with await disk.attach_job("job-1") as again:
            await again.commit(messages)
    assert disk.files() == {**NEW, "a=1/second": b"second"}


@pytest.mark.parametrize("place", PROTOCOL)
async def test_a_job_with_a_link_is_unknown_and_kept(disk: DiskPlace, tmp_path: Path, place: str) -> None:
    job, _messages = await open_job(disk, "listing")
    await job.close()
    intruder = Intruder(disk, tmp_path)
    place = intruder.plant(place)
    if place == "_temporary":
        for looking in (committer.list_jobs(disk.dest), committer.cleanup(disk.dest, older_than=0)):
            with pytest.raises(StoreLinkError, match="_temporary is a link"):
                await looking
        return
    assert await disk.states() == {"job-1": "unknown"}
    for force in (False, True):
        report = await committer.cleanup(disk.dest, older_than=0, force=force)
        assert report.removed == []
        assert f"{disk.root / place} is a link" in report.kept["job-1"]
        with pytest.raises(StoreLinkError) as caught:
            await committer.cleanup(disk.dest, job_id="job-1", force=force)
        assert caught.value.outcome == "unchanged"
        assert caught.value.path.endswith(place)
    assert (disk.root / place).is_symlink()
    intruder.undo()
    assert (await committer.cleanup(disk.dest, older_than=0)).removed == ["job-1"]
    assert disk.files() == OLD


async def test_a_link_that_a_task_left_goes_with_its_directory(disk: DiskPlace, tmp_path: Path) -> None:
    job, _messages = await open_job(disk, "listing")
    await job.close()
    (tmp_path / "home").mkdir()
    (tmp_path / "home/precious").write_bytes(b"x")
    [attempt, _other] = in_job(disk.root, "job-1").glob("00/tasks/*")
    (attempt / "to-home").symlink_to(tmp_path / "home")
    (attempt.parent / "to-home").symlink_to(tmp_path / "home")
    assert (await committer.cleanup(disk.dest, job_id="job-1")).removed == ["job-1"]
    assert not (disk.root / "_temporary").exists()
    assert (tmp_path / "home/precious").read_bytes() == b"x"


async def test_a_setup_does_not_go_through_a_link(disk: DiskPlace, tmp_path: Path) -> None:
    intruder = Intruder(disk, tmp_path)
    intruder.plant("_temporary")
    before = every_bit(intruder.outside)
    with pytest.raises(StoreLinkError, match="_temporary is a link"):
        await disk.open_job(job_id="job-1")
    assert every_bit(intruder.outside) == before


@pytest.mark.parametrize("place", [f"{JOB}/00/tasks", f"{JOB}/00/manifests", f"{JOB}/00/tasks/*/a=1", f"{JOB}/00"])
async def test_a_task_does_not_write_through_a_link(disk: DiskPlace, tmp_path: Path, place: str) -> None:
    job = await disk.open_job(job_id="job-1", delivery="listing")
    intruder = Intruder(disk, tmp_path)
    before: dict[str, Any] = {}
    with pytest.raises(CommitterError):
        async with job.task_attempt(task=0) as task:
            await write_file(task, "a=1/first", b"x")
            intruder.plant(place)
            before = every_bit(intruder.outside)
            await write_file(task, "a=1/second", b"x")
    assert every_bit(intruder.outside) == before
    await job.close()
