"""doctor: what it tries, what it finds wrong, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from committer.cli.doctor import Doctor
from committer.errors import StorePermissionError
from committer.paths import StorePath
from committer.stores.base import Capabilities, FileStatus
from committer.stores.examination import Finding
from committer.stores.local import LocalStore
from committer.stores.memory import MemoryStore
from committer.testing.faults import Fault, FaultyStore
from tests.cli.conftest import Lake, Run


def tree(path: Path) -> list[str]:
    return sorted(str(found) for found in path.rglob("*"))


def test_a_good_store_passes_and_nothing_is_left(run: Run, lake: Lake, tmp_path: Path) -> None:
    result = run("doctor", lake.path / "not" / "there" / "yet", "--output", "json")
    assert result.code == 0
    assert result.json["committer"] == "manifest"
    assert {check["verdict"] for check in result.json["checks"]} == {"ok"}
    assert tree(tmp_path) == []
    lake.open()
    before = tree(tmp_path)
    assert run("doctor", lake.path).code == 0
    assert tree(tmp_path) == before


def test_a_file_in_the_way(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("doctor", tmp_path / "file", "--output", "json")
    assert result.code == 1
    assert [check["verdict"] for check in result.json["checks"]] == ["failed"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_directory_that_may_not_be_written(run: Run, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert run("doctor", tmp_path).code == 1
    finally:
        tmp_path.chmod(0o700)


class Bad(LocalStore):
    """A local store with one fault of character."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    async def put(self, path: StorePath, data: bytes, **options: Any) -> FileStatus:  # type: ignore[override]
        if self.fault == "create":
            options["exclusive"] = False
        return await super().put(path, data, **options)

    async def rename_directory(self, source: StorePath, destination: StorePath, *, known: bool = False) -> None:
        if self.fault == "directory":
            await self.delete_directory(destination, recursive=True)
        await super().rename_directory(source, destination, known=known)

    async def status(self, path: StorePath) -> FileStatus:
        status = await super().status(path)
        if self.fault == "clock" and status.modified is not None:
            return msgspec.structs.replace(status, modified=status.modified - 3600)
        if self.fault == "no clock":
            return msgspec.structs.replace(status, modified=None)
        return status


@pytest.mark.parametrize(
    ("fault", "check", "verdict"),
    [
        ("create", "create exclusively", "failed"),
        ("directory", "rename a directory", "failed"),
        ("clock", "clock", "warning"),
        ("no clock", "clock", "warning"),
    ],
)
def test_a_store_that_does_not_keep_its_word_is_found_out(tmp_path: Path, fault: str, check: str, verdict: str) -> None:
    checks = examined(Bad(fault), tmp_path)
    assert checks[check].verdict == verdict
    assert tree(tmp_path) == []
    assert fault != "clock" or "behind" in checks["clock"].found


def examined(store: Any, path: Path | str) -> dict[str, Finding]:
    async def work() -> list[Finding]:
        return await Doctor(store, StorePath.of(path)).examine()

    return {check.name: check for check in asyncio.run(work())}


class Examined(LocalStore):
    """A local store whose service can be asked."""

    def __init__(self, *, forbidden: bool) -> None:
        super().__init__()
        self.forbidden = forbidden
        self.asked: list[tuple[StorePath, StorePath | None]] = []

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities, examination=True)

    async def make_directory(self, path: StorePath, *, parents: bool) -> bool:
        if self.forbidden:
            raise StorePermissionError("forbidden", operation="make_directory", path=path)
        return await super().make_directory(path, parents=parents)

    async def findings(self, directory: StorePath, *, scratch: StorePath | None = None) -> list[Finding]:
        self.asked.append((directory, scratch))
        return [Finding("service", "ok", "well")]


@pytest.mark.parametrize("forbidden", [False, True])
def test_the_service_is_asked_once_also_without_the_right_to_write(tmp_path: Path, forbidden: bool) -> None:
    """Of the directory that existed before, not of one that the check made."""
    store = Examined(forbidden=forbidden)
    checks = examined(store, tmp_path / "new" / "table")
    [(directory, scratch)] = store.asked
    assert directory == StorePath.of(tmp_path)
    assert (scratch is None, checks["write"].verdict) == ((True, "failed") if forbidden else (False, "ok"))
    assert scratch is None or scratch.is_under(StorePath.of(tmp_path / "new" / "table" / "_temporary"))
    assert checks["service"].verdict == "ok"
    assert tree(tmp_path) == []


@pytest.mark.parametrize(
    ("flag", "skipped"), [("atomic_directory_rename", "rename a directory"), ("replacing_rename", "rename replacing")]
)
def test_what_a_store_cannot_do_is_not_tried(flag: str, skipped: str) -> None:
    space = MemoryStore.space(f"doctor-{flag}", **{flag: False})
    assert examined(space.store(), f"memory://doctor-{flag}/table")[skipped].verdict == "skipped"


@pytest.mark.parametrize(
    ("profile", "forced"), [("s3", False), ("azure-flat", False), ("gcs", True), ("adls", None), ("hdfs", None)]
)
def test_every_kind_of_store_and_force_only_where_a_rollback_needs_it(profile: str, forced: bool | None) -> None:
    """Where no file is renamed, aborted uploads and lists of blocks keep other drivers from publishing."""
    space = MemoryStore.space(f"doctor-{profile}", profile)
    checks = examined(space.store(), f"memory://doctor-{profile}/some/table")
    assert {check.verdict for check in checks.values()} <= {"ok", "skipped", "warning"}
    assert list(space.tree) == []
    found = checks["rename a directory"]
    assert (found.verdict, "--force" in found.found) == ("ok" if forced is None else "skipped", bool(forced))


@pytest.mark.parametrize(
    ("operation", "found"),
    [
        ("status", {"reach the store": "failed"}),
        ("put", {"reach the store": "ok", "write": "failed"}),
        ("delete_directory", {"clean up": "failed"}),
    ],
)
def test_what_is_forbidden_is_found(tmp_path: Path, operation: str, found: dict[str, str]) -> None:
    """The examination ends at what all else needs. A sentence for an operator has no name of a class."""
    store = FaultyStore(LocalStore(), [Fault(kind="forbidden", operation=operation, times=None)])
    checks = examined(store, tmp_path)
    assert {name: checks[name].verdict for name in found} == found
    if operation != "delete_directory":
        assert (list(checks), tree(tmp_path)) == (list(found), [])
        assert checks[list(found)[-1]].found
        assert StorePermissionError.__name__ not in checks[list(found)[-1]].found


def test_what_to_do_about_a_refusal_is_said(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def put(*_arguments: object, **_options: object) -> FileStatus:
        raise StorePermissionError("a right is missing", next_step="give the right")

    monkeypatch.setattr(LocalStore, "put", put)
    result = run("doctor", tmp_path)
    assert result.code == 1
    assert "a right is missing" in result.out
    assert "StorePermissionError" not in result.out
    assert "next step: give the right" in result.out
    checks = run("doctor", tmp_path, "--output", "json").json["checks"]
    assert [check["next_step"] for check in checks if check["verdict"] == "failed"] == ["give the right"]
