"""A link that a hostile user plants between the look at a directory and the renames out of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

import committer
from committer.errors import InvalidPathError, StoreLinkError
from committer.paths import StorePath
from committer.stores.local import LocalStore, kernel_rename, places
from committer.stores.local.places import Held
from tests.stores.conftest import AtRename

TASKS = "_temporary/job-1/00/tasks"
ATTEMPT = f"{TASKS}/attempt-1"
# What this process holds open.
OPENED = Path("/dev/fd")


Ends = list[tuple[StorePath, StorePath]]


async def identities_of(store: LocalStore, of: Ends, *, known: bool) -> list[str | None] | None:
    return [(await store.status(source)).identity for source, _target in of] if known else None


def hostile_attempt(root: Path, names: list[str]) -> tuple[Path, Path, Path, Callable[[], None]]:
    """An attempt's directory, the partition, another user's directory, and what puts a link to it in the first's place."""
    attempt, target, outside = root / ATTEMPT, root / "a=1", root / "outside"
    for directory in (attempt, target, outside):
        directory.mkdir(parents=True)
    for name in names:
        (attempt / name).write_bytes(b"the job's")

    def plant() -> None:
        attempt.rename(attempt.with_name("real"))
        attempt.symlink_to(outside)

    return attempt, target, outside, plant


@pytest.mark.parametrize("files", [1, 3, 20])
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("known", [True, False])
async def test_files_behind_a_link_go_back(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, stays: bool, known: bool
) -> None:
    names = [f"part-{number:02}" for number in range(files)]
    attempt, target, outside, plant = hostile_attempt(tmp_path, names)
    for name in names:
        (outside / name).write_bytes(b"another user's")
    rename, calls = kernel_rename.rename_no_replace, 0

    def planting(source: str, destination: str, **ends: int | None) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            plant()
        rename(source, destination, **ends)
        if calls == files and not stays:
            attempt.unlink()
            attempt.with_name("real").rename(attempt)

    monkeypatch.setattr(kernel_rename, "rename_no_replace", planting)
    of = [(StorePath.of(attempt / name), StorePath.of(target / name)) for name in names]
    errors = await local.rename_files(of, identities=await identities_of(local, of, known=known))
    assert sorted(errors) == list(range(files))
    for error in errors.values():
        assert isinstance(error, StoreLinkError)
        assert error.outcome == ("unchanged" if stays else "unknown")
        assert "attempt-1 is a link" in error.message
    if stays:
        assert list(target.iterdir()) == []
        assert {path.read_bytes() for path in outside.iterdir()} == {b"another user's"}
        assert len(list(outside.iterdir())) == files
    kept = attempt.with_name("real") if stays else attempt
    assert {path.read_bytes() for path in kept.iterdir()} == {b"the job's"}


@pytest.mark.parametrize(("said", "looks"), [("its own", 0), ("another's", 20), ("none", 20)])
async def test_a_file_that_is_known_by_its_number_needs_no_look_at_its_old_place(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, looks: int
) -> None:
    target = tmp_path / "a=1"
    target.mkdir()
    of: Ends = []
    for number in range(20):
        directory = tmp_path / f"_temporary/job-1/00/tasks/attempt-{number}"
        directory.mkdir(parents=True)
        (directory / f"part-{number}").write_bytes(b"the job's")
        of.append((StorePath.of(directory / f"part-{number}"), StorePath.of(target / f"part-{number}")))
    own = [(await local.status(source)).identity for source, _target in of]
    identities = {"its own": own, "another's": own[1:] + own[:1], "none": None}[said]
    asked: list[str] = []
    left_in = Held.left_in

    def counting(held: Held, directory: str, names: Collection[str]) -> list[str]:
        asked.extend(names)
        return left_in(held, directory, names)

    monkeypatch.setattr(Held, "left_in", counting)
    assert await local.rename_files(of, identities=identities) == {}
    assert len(asked) == looks
    assert len(list(target.iterdir())) == 20


async def test_a_publish_says_what_its_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So no file of a job on a local disk costs a look at the place it came from."""
    asked: list[str] = []
    monkeypatch.setattr(Held, "left_in", lambda _held, _directory, names: asked.extend(names) or [])
    async with committer.open_job(tmp_path) as job:
        for task in range(8):
            async with job.task_attempt(task) as attempt, attempt.open(f"part-{task}") as file:
                await file.write(b"new")
        report = await job.commit()
    assert report.files_committed == 8
    assert asked == []


def of_many_attempts(root: Path, count: int = 20) -> Ends:
    """Files of as many attempts, each in a directory of its own, all of which go into one."""
    (root / "a=1").mkdir()
    of: Ends = []
    for number in range(count):
        directory = root / f"{TASKS}/attempt-{number:02}/a=1"
        directory.mkdir(parents=True)
        (directory / f"part-{number:02}").write_bytes(b"the job's")
        of.append((StorePath.of(directory / f"part-{number:02}"), StorePath.of(root / f"a=1/part-{number:02}")))
    return of


def other_tree(root: Path) -> Path:
    """The same names elsewhere, of another user's files."""
    outside = root / "outside"
    shutil.copytree(root / TASKS, outside)
    for path in outside.rglob("part-*"):
        path.write_bytes(b"another user's")
    return outside


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("place", "behind"), [("", range(20)), ("attempt-03", [3]), ("attempt-03/a=1", [3]), ("attempt-00", [0])]
)
async def test_a_link_on_the_way_of_some_of_many_directories_is_refused(
    local: LocalStore, tmp_path: Path, place: str, behind: Collection[int], known: bool
) -> None:
    of = of_many_attempts(tmp_path)
    outside = other_tree(tmp_path)
    identities = await identities_of(local, of, known=known)
    planted = tmp_path / TASKS / place
    planted.rename(tmp_path / "real")
    planted.symlink_to(outside / place)
    opened = len(list(OPENED.iterdir()))
    errors = await local.rename_files(of, identities=identities)
    assert len(list(OPENED.iterdir())) == opened
    assert sorted(errors) == list(behind)
    for error in errors.values():
        assert isinstance(error, StoreLinkError)
        assert error.outcome == "unchanged"
        assert f"{planted} is a link" in error.message
    assert {path.read_bytes() for path in (tmp_path / "a=1").iterdir()} <= {b"the job's"}
    assert len(list((tmp_path / "a=1").iterdir())) == 20 - len(behind)
    assert len([path for path in outside.rglob("part-*") if path.read_bytes() == b"another user's"]) == 20


@pytest.mark.parametrize("known", [True, False])
async def test_a_link_above_many_directories_in_the_middle_of_a_batch(
    local: LocalStore, tmp_path: Path, at_rename: AtRename, known: bool
) -> None:
    of = of_many_attempts(tmp_path)
    outside = other_tree(tmp_path)
    identities = await identities_of(local, of, known=known)

    def plant() -> None:
        (tmp_path / TASKS).rename(tmp_path / "real")
        (tmp_path / TASKS).symlink_to(outside)

    at_rename(6, plant)
    errors = await local.rename_files(of, identities=identities)
    assert sorted(errors) == list(range(5, 20))
    assert all(isinstance(error, StoreLinkError) for error in errors.values())
    assert {path.name for path in (tmp_path / "a=1").iterdir()} == {f"part-{number:02}" for number in range(5)}
    assert {path.read_bytes() for path in (tmp_path / "a=1").iterdir()} == {b"the job's"}
    assert len([path for path in outside.rglob("part-*") if path.read_bytes() == b"another user's"]) == 20


@pytest.mark.parametrize("known", [True, False])
async def test_files_behind_a_link_go_back_where_a_later_one_cannot_be_renamed_at_all(
    local: LocalStore, tmp_path: Path, at_rename: AtRename, known: bool
) -> None:
    """Those that were not yet renamed stay where they are, and so does what stands in their way."""
    names = [f"part-{number:02}" for number in range(12)]
    attempt, target, outside, plant = hostile_attempt(tmp_path, names)
    for name in names[:6]:
        (outside / name).write_bytes(b"another user's")
    (target / names[11]).write_bytes(b"another job's")
    of = [(StorePath.of(attempt / name), StorePath.of(target / name)) for name in names]
    of[6] = (of[6][0], StorePath.of(target) / "part\ud800")
    identities = await identities_of(local, of, known=known)
    at_rename(1, plant)
    with pytest.raises(InvalidPathError):
        await local.rename_files(of, identities=identities)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {names[11]: b"another job's"}
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == dict.fromkeys(names[:6], b"another user's")
    assert len(list(attempt.with_name("real").iterdir())) == 12


@pytest.mark.parametrize("known", [True, False])
async def test_a_batch_without_the_kernels_help_looks_at_each_way_and_keeps_nothing_open(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(places, "_kernel_opens", lambda: None)
    of = of_many_attempts(tmp_path)
    identities = await identities_of(local, of, known=known)
    opened = len(list(OPENED.iterdir()))
    assert await local.rename_files([]) == {}
    assert await local.rename_files(of, identities=identities) == {}
    assert len(list(OPENED.iterdir())) == opened
    assert len(list((tmp_path / "a=1").iterdir())) == 20


async def test_the_common_way_of_a_batch_is_walked_once(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = places._kernel_opens()
    if opened is None:
        pytest.skip("this kernel opens without links one level at a time")
    of = of_many_attempts(tmp_path)
    ways: list[str] = []

    def counted(at: int, path: str, flags: int) -> int:
        ways.append(path)
        return opened(at, path, flags)

    monkeypatch.setattr(places, "_kernel_opens", lambda: counted)
    assert await local.rename_files(of) == {}
    assert ways == [str(tmp_path / TASKS), *[f"attempt-{number:02}/a=1" for number in range(20)]]
