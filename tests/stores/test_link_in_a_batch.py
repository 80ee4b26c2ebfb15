"""A link that a hostile user plants between the look at a directory and the renames out of it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

import committer
from committer.errors import StoreLinkError
from committer.paths import StorePath
from committer.stores.local import LocalStore, kernel_rename
from committer.stores.local.places import Held

ATTEMPT = "_temporary/job-1/00/tasks/attempt-1"


@pytest.mark.parametrize("files", [1, 3, 20])
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("known", [True, False])
async def test_files_behind_a_link_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, stays: bool, known: bool
) -> None:
    names = [f"part-{number:02}" for number in range(files)]
    attempt, target, outside = tmp_path / ATTEMPT, tmp_path / "a=1", tmp_path / "outside"
    for directory in (attempt, target, outside):
        directory.mkdir(parents=True)
    for name in names:
        (attempt / name).write_bytes(b"the job's")
        (outside / name).write_bytes(b"another user's")
    rename = kernel_rename.rename_no_replace
    calls = 0

    def planting(source: str, destination: str, **ends: int | None) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            attempt.rename(attempt.with_name("real"))
            attempt.symlink_to(outside)
        rename(source, destination, **ends)
        if calls == files and not stays:
            attempt.unlink()
            attempt.with_name("real").rename(attempt)

    monkeypatch.setattr(kernel_rename, "rename_no_replace", planting)
    monkeypatch.setattr("committer.stores.local.calls.kernel_rename.rename_no_replace", planting)
    store = LocalStore()
    of = [(StorePath.of(attempt / name), StorePath.of(target / name)) for name in names]
    identities = [(await store.status(source)).identity for source, _target in of] if known else None
    errors = await store.rename_files(of, identities=identities)
    await store.close()
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, looks: int
) -> None:
    target = tmp_path / "a=1"
    target.mkdir()
    of: list[tuple[StorePath, StorePath]] = []
    for number in range(20):
        directory = tmp_path / f"_temporary/job-1/00/tasks/attempt-{number}"
        directory.mkdir(parents=True)
        (directory / f"part-{number}").write_bytes(b"the job's")
        of.append((StorePath.of(directory / f"part-{number}"), StorePath.of(target / f"part-{number}")))
    store = LocalStore()
    own = [(await store.status(source)).identity for source, _target in of]
    identities = {"its own": own, "another's": own[1:] + own[:1], "none": None}[said]
    asked: list[str] = []
    left_in = Held.left_in

    def counting(held: Held, directory: str, names: Collection[str]) -> list[str]:
        asked.extend(names)
        return left_in(held, directory, names)

    monkeypatch.setattr(Held, "left_in", counting)
    assert await store.rename_files(of, identities=identities) == {}
    await store.close()
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
