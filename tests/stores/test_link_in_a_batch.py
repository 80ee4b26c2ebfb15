"""A link that a hostile user plants between the look at a directory and the renames out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from committer.errors import StoreLinkError
from committer.paths import StorePath
from committer.stores.local import LocalStore, kernel_rename

ATTEMPT = "_temporary/job-1/00/tasks/attempt-1"


@pytest.mark.parametrize("files", [1, 3, 20])
@pytest.mark.parametrize("stays", [True, False])
async def test_files_behind_a_link_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, stays: bool
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
    errors = await store.rename_files(of)
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
