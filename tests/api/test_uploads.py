"""Uploads that were never completed: seen, measured and aborted from outside any job."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import committer
from committer import sync
from committer.errors import ConfigurationError, UnsupportedError
from committer.flow.runtime import Runtime, use_runtime
from committer.paths import StorePath
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing.faults import Call, Fault, FaultyStore

_numbers = itertools.count()
NAMES = ("dataset1/a=1/old", "dataset1/b", "dataset10/c", "dataset1", "dataset1.bak/d")


class _Earlier(Runtime):
    def __init__(self, hours: float) -> None:
        self._hours = hours

    def now(self) -> datetime:
        return super().now() - timedelta(hours=self._hours)


@pytest.fixture
def space() -> Iterator[MemorySpace]:
    name = f"uploads-{next(_numbers)}"
    yield MemoryStore.space(name, "s3")
    MemoryStore.forget(name)


async def begin(space: MemorySpace, name: str, *, hours: float = 0.0, parts: int = 0) -> str:
    with use_runtime(_Earlier(hours)):
        upload_id = await space.store().create_upload(space.path(name), stamp="job/0/0/a")
    for number in range(1, parts + 1):
        await space.store().put_part(space.path(name), upload_id, number, b"x" * 10 * number)
    return upload_id


def uri(space: MemorySpace, name: str = "") -> str:
    return str(space.path(name)).rstrip("/")


def pending(space: MemorySpace) -> list[str]:
    return sorted(upload.path.path[1:] for upload in space.uploads)


async def test_a_directory_s_own_are_listed(space: MemorySpace) -> None:
    for number, name in enumerate(NAMES):
        await begin(space, name, hours=10 - number)
    for given in (uri(space, "dataset1"), f"{uri(space, 'dataset1')}/", space.path("dataset1")):
        found = await committer.list_uploads(given)
        assert [upload.path.path for upload in found] == ["/dataset1/a=1/old", "/dataset1/b"]
    assert found[0].initiator == "memory"
    assert timedelta(hours=9) < datetime.now(UTC) - found[0].initiated < timedelta(hours=11)
    assert (found[0].parts, found[0].size) == (None, None)
    assert await committer.list_uploads(uri(space, "nothing")) == []
    assert len(await committer.list_uploads(uri(space))) == len(NAMES)


async def test_by_age(space: MemorySpace) -> None:
    await begin(space, "d/old", hours=30)
    await begin(space, "d/new", hours=1)
    for age in (timedelta(days=1), 86_400, 86_400.0):
        found = await committer.list_uploads(uri(space, "d"), older_than=age)
        assert [upload.path.name for upload in found] == ["old"]


async def test_sizes(space: MemorySpace) -> None:
    await begin(space, "d/empty")
    await begin(space, "d/three", parts=3)
    found = await committer.list_uploads(uri(space, "d"), sizes=True)
    assert [(upload.path.name, upload.parts, upload.size) for upload in found] == [("empty", 0, 0), ("three", 3, 60)]


async def test_what_ends_meanwhile_is_left_out(space: MemorySpace) -> None:
    for name in ("d/one", "d/two"):
        await begin(space, name)
    store = FaultyStore(space.store())

    async def end(call: Call) -> None:
        if call.operation == "list_parts":
            for upload in list(space.uploads):
                if upload.path.name == "one":
                    await space.store().abort_upload(upload.path, upload.upload_id)

    store.before_call = end
    config = committer.CommitterConfig(io_concurrency=1)
    found = await committer.list_uploads(uri(space, "d"), sizes=True, storage_options={"store": store}, config=config)
    assert [upload.path.name for upload in found] == ["two"]


async def test_an_age_is_needed_to_abort(space: MemorySpace) -> None:
    await begin(space, "d/file", hours=99)
    with pytest.raises(ConfigurationError, match="older_than") as caught:
        await committer.abort_uploads(uri(space, "d"))
    assert isinstance(caught.value, ValueError)
    assert pending(space) == ["d/file"]


@pytest.mark.parametrize("age", [-1, timedelta(days=-1), float("nan")])
async def test_what_is_no_age_is_refused(space: MemorySpace, age: timedelta | float) -> None:
    await begin(space, "d/file")
    with pytest.raises(ConfigurationError, match="older_than"):
        await committer.abort_uploads(uri(space, "d"), older_than=age)
    assert pending(space) == ["d/file"]


async def test_aborting_spares_the_young_and_the_neighbours(space: MemorySpace) -> None:
    for name in NAMES:
        await begin(space, name, hours=30, parts=1)
    await begin(space, "dataset1/young", hours=1)
    report = await committer.abort_uploads(uri(space, "dataset1"), older_than=timedelta(days=1))
    assert sorted(upload.path.name for upload in report.aborted) == ["b", "old"]
    assert (report.gone, report.failed) == ([], {})
    assert pending(space) == ["dataset1", "dataset1.bak/d", "dataset1/young", "dataset10/c"]
    await committer.abort_uploads(uri(space, "dataset1"), force=True)
    assert pending(space) == ["dataset1", "dataset1.bak/d", "dataset10/c"]


async def test_what_a_late_part_brings_back_is_aborted_again(space: MemorySpace) -> None:
    """S3 may keep a part that was under way when its upload was aborted; until it is gone it is paid for."""
    upload_id = await begin(space, "d/file", parts=1)
    store = FaultyStore(space.store())
    kept = dict(space.uploads._pending)

    async def bring_back(call: Call) -> None:
        if call.operation == "list_parts" and sum(one.operation == "abort_upload" for one in store.calls) < 3:
            space.uploads._pending.update(kept)

    store.before_call = bring_back
    report = await committer.abort_uploads(uri(space, "d"), force=True, storage_options={"store": store})
    assert [upload.upload_id for upload in report.aborted] == [upload_id]
    assert sum(call.operation == "abort_upload" for call in store.calls) == 3
    assert pending(space) == []


async def test_one_that_fails_stops_no_other(space: MemorySpace) -> None:
    ids = {name: await begin(space, f"d/{name}") for name in ("a", "b", "c")}
    store = FaultyStore(space.store(), [Fault(kind="forbidden", operation="abort_upload", path="/b")])
    report = await committer.abort_uploads(uri(space, "d"), force=True, storage_options={"store": store})
    assert set(report.failed) == {ids["b"]}
    assert report.failed[ids["b"]]
    assert pending(space) == ["d/b"]
    assert sorted(upload.path.name for upload in report.aborted) == ["a", "c"]


async def test_one_that_was_completed_meanwhile_is_gone(space: MemorySpace) -> None:
    upload_id = await begin(space, "d/file", parts=1)
    store = FaultyStore(space.store())

    async def complete(call: Call) -> None:
        if call.operation == "abort_upload" and space.files() == {}:
            parts = [part async for part in space.store().list_parts(space.path("d/file"), upload_id)]
            await space.store().complete_upload(space.path("d/file"), upload_id, parts)

    store.before_call = complete
    report = await committer.abort_uploads(uri(space, "d"), force=True, storage_options={"store": store})
    assert (report.aborted, [upload.upload_id for upload in report.gone]) == ([], [upload_id])
    assert space.files() == {"/d/file": b"x" * 10}


async def test_stores_without_uploads(tmp_path: object) -> None:
    for use in (committer.list_uploads(str(tmp_path)), committer.abort_uploads(str(tmp_path), force=True)):
        with pytest.raises(UnsupportedError, match="has no uploads"):
            await use


def test_blocking(space: MemorySpace) -> None:

    asyncio.run(begin(space, "d/file", parts=2))
    [found] = sync.list_uploads(uri(space, "d"), sizes=True)
    assert (found.path, found.size) == (StorePath.of(f"{uri(space)}/d/file"), 30)
    assert [upload.path for upload in sync.abort_uploads(uri(space, "d"), force=True).aborted] == [found.path]
    assert sync.list_uploads(uri(space, "d")) == []
