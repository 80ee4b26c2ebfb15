"""A directory is deleted a part of its entries at a time: a job may have moved millions of old files into one."""

from __future__ import annotations

from pathlib import Path

import pytest

from committer.paths import StorePath
from committer.stores.local import LocalStore, trees


@pytest.mark.allow_blocking("a test may look at the disk")
@pytest.mark.parametrize("part", [1, 2, 3, 100])
async def test_a_tree_is_deleted_part_by_part(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "_A_PART", part)
    top = tmp_path / "top"
    for name in ("a", "b", "c/d", "c/e", "c/f/g", "h/i/j", "k", "l/m", "l/n", "l/o", "l/p/q"):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (top / "empty").mkdir()
    store = LocalStore()
    try:
        assert await store.delete_directory(StorePath.of(str(top)), recursive=True)
    finally:
        await store.close()
    assert not top.exists()
    assert tmp_path.exists()
