"""The store that fails on demand does exactly what it is told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from committer.errors import (
    StoreError,
    StoreExistsError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreThrottledError,
    StoreUnavailableError,
)
from committer.flow.runtime import use_runtime
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime

_numbers = itertools.count()

# What a call raises, and whether its effect happened all the same.
KINDS = pytest.mark.parametrize(
    ("kind", "error", "effect"),
    [
        ("unavailable", StoreUnavailableError, False),
        ("throttled", StoreThrottledError, False),
        ("forbidden", StorePermissionError, False),
        ("unanswered", StoreOutcomeUnknownError, False),
        ("lost", StoreOutcomeUnknownError, True),
        ("crash_before", SimulatedCrash, False),
        ("crash_after", SimulatedCrash, True),
    ],
)


@pytest.fixture
def space() -> MemorySpace:
    return MemoryStore.space(f"faults-{next(_numbers)}")


async def test_after_a_crash_every_call_crashes(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="crash_before", operation="rename_file")])
    writer = await store.open_writer(space.path("file"))
    listing = store.list(space.path(""))
    assert await anext(listing)
    with pytest.raises(SimulatedCrash):
        await store.rename_file(space.path("file"), space.path("new"))
    for call in (store.status(space.path("file")), writer.write(b"1"), writer.abort(), anext(listing)):
        with pytest.raises(SimulatedCrash):
            await call
    await store.close()
    assert store.crashed
    assert await store.inner.read(space.path("file"), limit=10) == b""


async def test_what_was_under_way_in_a_crash_has_its_effect_but_no_answer(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="crash_before", call=3)])
    found = await asyncio.gather(
        *(store.put(space.path(f"{number}"), b"") for number in range(5)), return_exceptions=True
    )
    assert all(isinstance(one, SimulatedCrash) for one in found)
    assert set(space.files()) == {"/0", "/1"}


async def test_which_calls_a_fault_hits(space: MemorySpace) -> None:
    space.write("/a/file", b"")
    store = FaultyStore(space.store())
    store.faults = [
        Fault(kind="forbidden", operation="status", path="/a/", times=2),
        Fault(kind="unavailable", path=lambda path: path.name == "target"),
        Fault(kind="throttled", operation="read", times=None, retry_after_s=1.5),
    ]
    for _ in range(2):
        with pytest.raises(StorePermissionError):
            await store.status(space.path("a/file"))
    await store.status(space.path("a/file"))
    with pytest.raises(StoreUnavailableError):
        await store.rename_file(space.path("a/file"), space.path("target"))
    await store.rename_file(space.path("a/file"), space.path("target"))
    for _ in range(5):
        with pytest.raises(StoreThrottledError) as caught:
            await store.read(space.path("target"), limit=1)
        assert caught.value.retry_after_s == 1.5


async def test_the_log_can_be_read(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="lost", call=2)])
    await store.put(space.path("a"), b"", exclusive=True)
    with pytest.raises(StoreOutcomeUnknownError):
        await store.rename_file(space.path("a"), space.path("b"))
    with pytest.raises(StoreExistsError):
        await store.put(space.path("b"), b"", exclusive=True)
    host = f"memory://{space.name}"
    assert store.log().splitlines() == [
        f"   1 put {host}/a: ok",
        f"   2 rename_file {host}/a -> {host}/b [lost]: StoreOutcomeUnknownError",
        f"   3 put {host}/b: StoreExistsError",
    ]
    assert store.counts() == {"put": 2, "rename_file": 1}
    assert (store.count(), store.count("put")) == (3, 2)


async def test_a_lost_answer_hides_a_refusal_too(space: MemorySpace) -> None:
    space.write("/there", b"old")
    store = FaultyStore(space.store(), [Fault(kind="lost")])
    with pytest.raises(StoreOutcomeUnknownError):
        await store.put(space.path("there"), b"new", exclusive=True)
    assert space.files() == {"/there": b"old"}


async def test_a_listing_is_one_call(space: MemorySpace) -> None:
    for number in range(3):
        space.write(f"/{number}", b"")
    store = FaultyStore(space.store())
    assert len([status async for status in store.list(space.path(""))]) == 3
    assert store.count() == 1
    store.faults = [Fault(kind="unavailable"), Fault(kind="lost")]
    with pytest.raises(StoreUnavailableError):
        await anext(store.list(space.path("")))
    seen = []
    with pytest.raises(StoreOutcomeUnknownError):
        async for status in store.list(space.path("")):
            seen.append(status)
    assert len(seen) == 3


async def test_something_can_happen_right_before_a_call(space: MemorySpace) -> None:
    async def another(call: Call) -> None:
        if call.operation == "put":
            await space.store().put(call.path, b"theirs", exclusive=True)

    store = FaultyStore(space.store(), before_call=another)
    with pytest.raises(StoreExistsError):
        await store.put(space.path("file"), b"mine", exclusive=True)
    assert space.files() == {"/file": b"theirs"}


def test_a_crash_is_no_exception() -> None:
    assert not issubclass(SimulatedCrash, Exception)


async def test_late_request_has_its_effect_after_the_caller_gave_it_up(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="late", operation="put", delay_s=5.0)])
    seen: list[str] = []
    store.after_effect = lambda call: seen.append(call.operation)
    with use_runtime(VirtualRuntime()) as runtime:
        with pytest.raises(StoreOutcomeUnknownError):
            await store.put(space.path("f"), b"late")
        assert space.files() == {}
        (late,) = store.under_way
        await late
        assert runtime.monotonic() == 5.0
    assert space.files() == {"/f": b"late"}
    assert seen == ["put (late)"]
    assert [call.result for call in store.calls] == ["StoreOutcomeUnknownError", "ok"]


async def test_request_that_arrives_again_undoes_what_came_between(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="again", operation="put")])
    with use_runtime(VirtualRuntime()):
        await store.put(space.path("f"), b"first")
        await store.put(space.path("f"), b"second")
        await asyncio.gather(*store.under_way)
    assert space.files() == {"/f": b"first"}


async def test_request_that_arrives_again_may_be_refused(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="again", operation="put")])
    with use_runtime(VirtualRuntime()):
        await store.put(space.path("f"), b"first", exclusive=True)
        await asyncio.gather(*store.under_way)
    assert [call.result for call in store.calls] == ["ok", "StoreExistsError"]


@pytest.mark.parametrize("kind", ["late", "again"])
async def test_listing_never_comes_out_of_order(space: MemorySpace, kind: FaultKind) -> None:
    space.write("/d/f", b"")
    store = FaultyStore(space.store(), [Fault(kind=kind)])
    with pytest.raises(StoreOutcomeUnknownError):
        assert [child async for child in store.list(space.path("d"))]
    assert not store.under_way


# --- Uploads, block lists, and the deletes that come with them ----------------------------------------------------

Use = Callable[[FaultyStore, MemorySpace], Awaitable[object]]

CHANGES: dict[str, tuple[str, Use]] = {
    "put": ("s3", lambda store, space: store.put(space.path("new"), b"")),
    "create_upload": ("s3", lambda store, space: store.create_upload(space.path("new"), stamp="s")),
    "put_part": ("s3", lambda store, space: store.put_part(space.path("f"), "upload-1", 2, b"more")),
    "complete_upload": (
        "s3",
        lambda store, space: store.complete_upload(space.path("f"), "upload-1", space.uploads.parts(space.path("f"), "upload-1")),
    ),
    "abort_upload": ("s3", lambda store, space: store.abort_upload(space.path("f"), "upload-1")),
    "delete_file_if": ("s3", lambda store, space: store.delete_file_if(space.path("old"), identity=_identity(space))),
    "delete_files": ("s3", lambda store, space: store.delete_files({space.path("old"): None, space.path("older"): None})),
    "delete_files, conditional": (
        "s3", lambda store, space: store.delete_files({space.path("old"): _identity(space), space.path("gone"): "any"})
    ),
    "put_block": ("azure-flat", lambda store, space: store.put_block(space.path("f"), "b2", b"more")),
    "put_block_list": ("azure-flat", lambda store, space: store.put_block_list(space.path("f"), ["b1"], stamp="s")),
}  # fmt: skip


def _identity(space: MemorySpace) -> str:
    return space.tree.file(space.path("old"), "read").identity or ""


def prepared(profile: str) -> MemorySpace:
    space = MemoryStore.space(f"faults-{next(_numbers)}", profile)
    space.write("/old", b"old")
    if profile == "s3":
        space.uploads.create(space.path("f"), "s")
        space.uploads.put_part(space.path("f"), "upload-1", 1, b"one")
    else:
        space.blocks.put(space.path("f"), "b1", b"one")
    return space


def left_in(space: MemorySpace) -> object:
    uploads = {one.upload_id: space.uploads.parts(one.path, one.upload_id) for one in space.uploads}
    return space.files(), uploads, space.blocks.listed(space.path("f"))


@pytest.mark.parametrize("operation", CHANGES)
@KINDS
async def test_each_is_one_call_that_can_fail(
    operation: str, kind: FaultKind, error: type[BaseException], effect: bool
) -> None:
    profile, use = CHANGES[operation]
    space = prepared(profile)
    called = operation.partition(",")[0]
    store = FaultyStore(space.store(), [Fault(kind=kind, operation=called)])
    before = left_in(space)
    with pytest.raises(error) as caught:
        await use(store, space)
    assert (left_in(space) != before) == effect
    assert [(call.operation, call.fault) for call in store.calls] == [(called, kind)]
    if isinstance(caught.value, StoreError):
        assert caught.value.outcome == ("unknown" if error is StoreOutcomeUnknownError else "unchanged")
        assert caught.value.operation == called
        await store.put(space.path("another"), b"")


@pytest.mark.parametrize("operation", CHANGES)
async def test_each_may_arrive_late(operation: str) -> None:
    profile, use = CHANGES[operation]
    with use_runtime(VirtualRuntime()):
        space, undisturbed = prepared(profile), prepared(profile)
        await use(FaultyStore(undisturbed.store()), undisturbed)
        store = FaultyStore(space.store(), [Fault(kind="late")])
        before = left_in(space)
        with pytest.raises(StoreOutcomeUnknownError):
            await use(store, space)
        assert left_in(space) == before
        await asyncio.gather(*store.under_way)
        assert left_in(space) == left_in(undisturbed)
        assert [call.result for call in store.calls] == ["StoreOutcomeUnknownError", "ok"]


# Whether a second arrival leaves what the first did: all but a creation, which makes an upload that no process knows.
@pytest.mark.parametrize(("operation", "second"), [
    ("put", "ok"),
    ("create_upload", "ok"),
    ("put_part", "ok"),
    ("complete_upload", "StoreUploadNotFoundError"),
    ("abort_upload", "ok"),
    ("delete_file_if", "ok"),
    ("delete_files", "ok"),
    ("delete_files, conditional", "ok"),
    ("put_block", "ok"),
    ("put_block_list", "StorePartsError"),
])  # fmt: skip
async def test_each_may_arrive_again(operation: str, second: str) -> None:
    profile, use = CHANGES[operation]
    with use_runtime(VirtualRuntime()):
        space = prepared(profile)
        store = FaultyStore(space.store(), [Fault(kind="again")])
        await use(store, space)
        after = left_in(space)
        await asyncio.gather(*store.under_way)
        assert (left_in(space) == after) == (operation != "create_upload")
    assert [call.result for call in store.calls] == ["ok", second]


async def test_what_arrives_late_is_what_was_sent() -> None:
    with use_runtime(VirtualRuntime()):
        for profile in ("s3", "azure-flat"):
            space = prepared(profile)
            store = FaultyStore(space.store(), [Fault(kind="late")])
            buffer = bytearray(b"sent")
            with pytest.raises(StoreOutcomeUnknownError):
                if profile == "s3":
                    await store.put_part(space.path("f"), "upload-1", 1, memoryview(buffer))
                else:
                    await store.put_block(space.path("f"), "b1", memoryview(buffer))
            buffer[:] = b"next"
            await asyncio.gather(*store.under_way)
            if profile == "s3":
                [part] = space.uploads.parts(space.path("f"), "upload-1")
                await store.complete_upload(space.path("f"), "upload-1", [part])
            else:
                await store.put_block_list(space.path("f"), ["b1"], stamp="s")
            assert space.files()["/f"] == b"sent"


async def test_listings_of_uploads_and_parts_are_one_call_each() -> None:
    space = prepared("s3")
    store = FaultyStore(space.store())
    assert [one.upload_id async for one in store.list_uploads(space.path(""))] == ["upload-1"]
    assert [part.number async for part in store.list_parts(space.path("f"), "upload-1")] == [1]
    assert store.counts() == {"list_uploads": 1, "list_parts": 1}
    for kind in ("lost", "late", "again"):
        store.faults = [Fault(kind=kind, times=2)]
        seen = []
        with pytest.raises(StoreOutcomeUnknownError):
            async for one in store.list_uploads(space.path("")):
                seen.append(one)
        with pytest.raises(StoreOutcomeUnknownError):
            async for part in store.list_parts(space.path("f"), "upload-1"):
                seen.append(part)
        assert len(seen) == 2
    assert not store.under_way
