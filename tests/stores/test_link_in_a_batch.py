"""A link that a hostile user plants on the way of some of many renames."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest

from committer.errors import StoreLinkError
from committer.paths import StorePath
from committer.stores.local import LocalStore, places

TASKS = "_temporary/job-1/00/tasks"
# What this process holds open.
OPENED = Path("/dev/fd")


Ends = list[tuple[StorePath, StorePath]]


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


@pytest.mark.parametrize(
    ("place", "behind"), [("", range(20)), ("attempt-03", [3]), ("attempt-03/a=1", [3]), ("attempt-00", [0])]
)
async def test_a_link_on_the_way_of_some_of_many_directories_is_refused(
    local: LocalStore, tmp_path: Path, place: str, behind: Collection[int]
) -> None:
    of = of_many_attempts(tmp_path)
    outside = other_tree(tmp_path)
    planted = tmp_path / TASKS / place
    planted.rename(tmp_path / "real")
    planted.symlink_to(outside / place)
    opened = len(list(OPENED.iterdir()))
    errors = await local.rename_files(of)
    assert len(list(OPENED.iterdir())) == opened
    assert sorted(errors) == list(behind)
    for error in errors.values():
        assert isinstance(error, StoreLinkError)
        assert error.outcome == "unchanged"
        assert f"{planted} is a link" in error.message
    assert {path.read_bytes() for path in (tmp_path / "a=1").iterdir()} <= {b"the job's"}
    assert len(list((tmp_path / "a=1").iterdir())) == 20 - len(behind)
    assert len([path for path in outside.rglob("part-*") if path.read_bytes() == b"another user's"]) == 20


async def test_a_batch_without_the_kernels_help_looks_at_each_way_and_keeps_nothing_open(
    local: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_kernel_opens", lambda: None)
    of = of_many_attempts(tmp_path)
    opened = len(list(OPENED.iterdir()))
    assert await local.rename_files([]) == {}
    assert await local.rename_files(of) == {}
    assert len(list(OPENED.iterdir())) == opened
    assert len(list((tmp_path / "a=1").iterdir())) == 20
