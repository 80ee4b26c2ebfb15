"""Functions over any store, where answers are lost."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from committer.errors import (
    CommitterError,
    ConfigurationError,
    RecordError,
    StoreConflictError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePreconditionError,
    StoreUnavailableError,
    StoreUploadNotFoundError,
    UnsupportedError,
)
from committer.flow.runtime import use_runtime
from committer.stores.base import Store
from committer.stores.helpers import (
    create_exclusively,
    end_upload,
    exists,
    finish_block_list,
    finish_upload,
    is_pending,
    move_file,
    status_or_none,
    walk,
)
from committer.stores.memory import MemorySpace, MemoryStore
from committer.stores.uploads import UploadPart
from committer.testing.faults import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from committer.testing.virtual_time import VirtualRuntime

_numbers = itertools.count()


@pytest.fixture
def space() -> MemorySpace:
    return MemoryStore.space(f"helpers-{next(_numbers)}")


async def test_winning_is_one_call_and_losing_two(space: MemorySpace) -> None:
    store = FaultyStore(space.store())
    assert await create_exclusively(store, space.path("file"), b"mine") == b"mine"
    assert [call.operation for call in store.calls] == ["put"]
    assert await create_exclusively(store, space.path("file"), b"theirs") == b"mine"
    assert [call.operation for call in store.calls] == ["put", "put", "read"]


@pytest.mark.parametrize("there", [None, b"theirs"])
async def test_a_lost_answer_is_looked_for(space: MemorySpace, there: bytes | None) -> None:
    if there:
        space.write("/file", there)
    store = FaultyStore(space.store(), [Fault(kind="lost", operation="put")])
    assert await create_exclusively(store, space.path("file"), b"mine") == (there or b"mine")
    assert space.files() == {"/file": there or b"mine"}
    assert store.count("put") == 1


async def test_a_lost_request_is_sent_again(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="unanswered", operation="put", times=3)])
    assert await create_exclusively(store, space.path("file"), b"mine") == b"mine"
    assert store.counts() == {"put": 4, "read": 3}


async def test_requests_that_are_always_lost(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="unanswered", operation="put", times=None)])
    with pytest.raises(StoreOutcomeUnknownError) as caught:
        await create_exclusively(store, space.path("file"), b"mine")
    assert caught.value.outcome == "unknown"
    assert store.count("put") == 5


@pytest.mark.parametrize(("operation", "kind"), [("read", "unavailable"), ("read", "forbidden"), ("put", "forbidden")])
async def test_a_lost_answer_that_cannot_be_looked_for_is_unknown(
    space: MemorySpace, operation: str, kind: FaultKind
) -> None:
    """The request may land yet: who is told that nothing was done rolls back what the file rests on."""
    late = Fault(kind="late", operation="put", delay_s=0.25)
    store = FaultyStore(space.store(), [late, Fault(kind=kind, operation=operation)])
    with pytest.raises(StoreOutcomeUnknownError, match="looking failed" if operation == "read" else None):
        await create_exclusively(store, space.path("file"), b"mine")
    await asyncio.gather(*store.under_way)
    assert space.files() == {"/file": b"mine"}


async def test_other_errors_go_through(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="unavailable", operation="put")])
    with pytest.raises(StoreUnavailableError):
        await create_exclusively(store, space.path("file"), b"mine")
    with pytest.raises(StoreNotFoundError):
        await create_exclusively(store, space.path("not/there"), b"mine")
    space.write("/long", b"x" * 100)
    with pytest.raises(RecordError):
        await create_exclusively(store, space.path("long"), b"mine", limit=99)


async def test_a_winners_file_that_is_deleted_at_once_is_not_made_again(space: MemorySpace) -> None:
    space.write("/file", b"theirs")
    store = FaultyStore(space.store())

    async def delete(call: object) -> None:
        if store.count("read"):
            await store.inner.delete_file(space.path("file"))

    store.before_call = delete
    with pytest.raises(StoreNotFoundError):
        await create_exclusively(store, space.path("file"), b"mine")
    assert space.files() == {}


async def test_walk_skips_what_vanishes(space: MemorySpace) -> None:
    for name in ("/a/one", "/b/two", "/c/three"):
        space.write(name, b"")
    store = space.store()
    found = []
    async for status in walk(store, space.path("")):
        found.append(status.path.path)
        if status.path.path == "/a":
            await store.delete_directory(space.path("b"), recursive=True)
    assert sorted(found) == ["/a", "/a/one", "/b", "/c", "/c/three"]
    with pytest.raises(StoreNotFoundError):
        _ = [status async for status in walk(store, space.path("b"))]


async def test_looking(space: MemorySpace) -> None:
    space.write("/file", b"1")
    store = FaultyStore(space.store())
    assert await exists(store, space.path("file"))
    assert not await exists(store, space.path("none"))
    assert (await status_or_none(store, space.path("none"))) is None
    assert store.count() == 3
    store.faults.append(Fault(kind="unavailable"))
    with pytest.raises(StoreUnavailableError):
        await exists(store, space.path("file"))


# --- Completing an upload ---------------------------------------------------------------------------------------------


@pytest.fixture
def bucket() -> MemorySpace:
    return MemoryStore.space(f"helpers-{next(_numbers)}", "s3")


async def begun(bucket: MemorySpace, *, stamp: str = "mine") -> tuple[str, list[UploadPart]]:
    store, path = bucket.store(), bucket.path("file")
    upload_id = await store.create_upload(path, stamp=stamp)
    return upload_id, [await store.put_part(path, upload_id, 1, b"data")]


async def finish(store: Store, bucket: MemorySpace, begun: tuple[str, list[UploadPart]], **how: bool) -> str | None:
    return await finish_upload(store, bucket.path("file"), *begun, stamp="mine", size=4, **how)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("kind", [None, "lost"])
async def test_a_completion_is_made_once(bucket: MemorySpace, kind: FaultKind | None, exclusive: bool) -> None:
    store = FaultyStore(bucket.store(), [Fault(kind=kind, operation="complete_upload")] if kind else [])
    identity = await finish(store, bucket, await begun(bucket), exclusive=exclusive)
    assert identity == (await bucket.store().status(bucket.path("file"))).identity
    assert store.counts() == {"complete_upload": 1, **({"status": 1} if kind else {})}


@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_completion_that_was_done_before_is_found(bucket: MemorySpace, exclusive: bool) -> None:
    upload = await begun(bucket)
    identity = await bucket.store().complete_upload(bucket.path("file"), *upload)
    assert await finish(bucket.store(), bucket, upload, exclusive=exclusive) == identity


async def test_an_upload_that_was_aborted(bucket: MemorySpace) -> None:
    upload = await begun(bucket)
    await bucket.store().abort_upload(bucket.path("file"), upload[0])
    with pytest.raises(StoreUploadNotFoundError):
        await finish(bucket.store(), bucket, upload)
    # A file of equal length and another stamp is another's.
    other = await begun(bucket, stamp="theirs")
    await bucket.store().complete_upload(bucket.path("file"), *other)
    with pytest.raises(StoreUploadNotFoundError):
        await finish(bucket.store(), bucket, upload)
    with pytest.raises(StoreExistsError):
        await finish(bucket.store(), bucket, await begun(bucket), exclusive=True)


async def test_a_completion_that_did_not_arrive_is_sent_again(bucket: MemorySpace) -> None:
    """A look shows that the upload still pends: whichever request arrives first makes the same file."""
    store = FaultyStore(bucket.store(), [Fault(kind="unanswered", operation="complete_upload", times=2)])
    assert await finish(store, bucket, await begun(bucket), exclusive=True)
    assert store.counts() == {"complete_upload": 3, "status": 2, "list_parts": 2}


@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_completion_that_arrives_late_and_one_sent_again_are_one(bucket: MemorySpace, exclusive: bool) -> None:
    late = Fault(kind="late", operation="complete_upload", delay_s=0.05)
    store = FaultyStore(bucket.store(), [late])
    assert await finish(store, bucket, await begun(bucket), exclusive=exclusive)
    assert (store.count("complete_upload"), store.count("complete_upload (late)")) == (2, 1)
    assert bucket.files() == {"/file": b"data"}


async def test_a_completion_whose_answers_are_always_lost(bucket: MemorySpace) -> None:
    store = FaultyStore(bucket.store(), [Fault(kind="unanswered", operation="complete_upload", times=None)])
    with pytest.raises(StoreOutcomeUnknownError):
        await finish(store, bucket, await begun(bucket))
    assert store.count("complete_upload") == 5


async def test_a_lost_completion_of_an_upload_that_is_gone_is_unknown(bucket: MemorySpace) -> None:
    """It may have been the file for a moment, or another process aborted it: the answer would have told."""
    upload = await begun(bucket)
    store = FaultyStore(bucket.store(), [Fault(kind="lost", operation="complete_upload")])

    async def replace(call: Call) -> None:
        if call.operation == "status":
            await bucket.store().put(bucket.path("file"), b"other")

    store.before_call = replace
    with pytest.raises(StoreOutcomeUnknownError):
        await finish(store, bucket, upload)
    assert store.count("complete_upload") == 1


@pytest.mark.parametrize("refusal", ["of the store", "of the keys"])
async def test_a_completion_that_cannot_be_looked_at(bucket: MemorySpace, refusal: str) -> None:
    """Some refusals are no errors of the store: of keys that cannot be read any more, for one."""
    store = FaultyStore(bucket.store(), [Fault(kind="lost", operation="complete_upload")])

    async def refuse(call: Call) -> None:
        if call.operation == "status":
            raise ConfigurationError("the option secret_access_key refers to a file that is gone")

    if refusal == "of the keys":
        store.before_call = refuse
    else:
        store.faults.append(Fault(kind="forbidden", operation="status"))
    with pytest.raises(StoreOutcomeUnknownError, match="looking failed") as caught:
        await finish(store, bucket, await begun(bucket))
    assert len(caught.value.causes) == 2


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("kind", ["throttled", "unavailable", "forbidden"])
async def test_a_refusal_after_a_lost_answer_says_nothing_of_the_first_request(
    bucket: MemorySpace, kind: FaultKind, arrives: bool
) -> None:
    """A look shows that the upload pends, it is sent again and refused; meanwhile the first request arrives, or not."""
    upload = await begun(bucket)
    store = FaultyStore(
        bucket.store(),
        [Fault(kind="unanswered", operation="complete_upload"), Fault(kind=kind, operation="complete_upload", times=9)],
    )

    async def arrive(call: Call) -> None:
        if store.count("complete_upload") == 2 and call.operation == "status" and not bucket.files():
            await bucket.store().complete_upload(bucket.path("file"), *upload)

    if arrives:
        store.before_call = arrive
        assert await finish(store, bucket, upload) == (await bucket.store().status(bucket.path("file"))).identity
    else:
        with pytest.raises(StoreOutcomeUnknownError):
            await finish(store, bucket, upload)


async def test_a_store_without_uploads(space: MemorySpace) -> None:
    with pytest.raises(UnsupportedError):
        await finish(space.store(), space, ("any", []))


# -- moving a record where nothing is renamed -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "calls"),
    [("local", {"rename_file": 1}), ("s3", {"status": 2, "read": 1, "put": 1, "delete_file_if": 1})],
)
async def test_a_record_moves_by_a_rename_or_by_a_copy_and_a_conditional_delete(
    profile: str, calls: dict[str, int]
) -> None:
    space = MemoryStore.space(f"helpers-{next(_numbers)}", profile)
    space.write("/a", b"record")
    store = FaultyStore(space.store())
    await move_file(store, space.path("a"), space.path("b"))
    assert store.counts() == calls
    assert space.files() == {"/b": b"record"}


@pytest.mark.parametrize("number", range(1, 6))
async def test_a_copy_that_died_half_way_is_finished_by_the_next(number: int, bucket: MemorySpace) -> None:
    bucket.write("/a", b"record")
    dying = FaultyStore(bucket.store(), [Fault(kind="crash_before", call=number)])
    with pytest.raises(SimulatedCrash):
        await move_file(dying, bucket.path("a"), bucket.path("b"))
    assert bucket.files()["/a"] == b"record"
    await move_file(bucket.store(), bucket.path("a"), bucket.path("b"))
    assert bucket.files() == {"/b": b"record"}


async def test_nothing_else_is_replaced_by_a_copy_unless_told(bucket: MemorySpace) -> None:
    bucket.write("/a", b"record")
    bucket.write("/b", b"other")
    with pytest.raises(StoreExistsError):
        await move_file(bucket.store(), bucket.path("a"), bucket.path("b"))
    assert bucket.files() == {"/a": b"record", "/b": b"other"}
    await move_file(bucket.store(), bucket.path("a"), bucket.path("b"), replace=True)
    assert bucket.files() == {"/b": b"record"}


async def test_another_source_is_not_copied(bucket: MemorySpace) -> None:
    bucket.write("/a", b"record")
    with pytest.raises(StorePreconditionError):
        await move_file(bucket.store(), bucket.path("a"), bucket.path("b"), identity="another")
    with pytest.raises(StoreNotFoundError):
        await move_file(bucket.store(), bucket.path("c"), bucket.path("b"))
    assert bucket.files() == {"/a": b"record"}


@pytest.mark.parametrize("before", ["read", "status", "delete_file_if"])
async def test_a_source_that_changes_meanwhile_stays(before: str, bucket: MemorySpace) -> None:
    bucket.write("/a", b"record")
    store = FaultyStore(bucket.store())

    async def change(call: Call) -> None:
        if call.operation == before and (before != "status" or store.count("status") == 2):
            bucket.write("/a", b"changed")

    store.before_call = change
    with pytest.raises(StorePreconditionError):
        await move_file(store, bucket.path("a"), bucket.path("b"))
    assert bucket.files()["/a"] == b"changed"


async def test_nothing_moves_where_there_is_neither_rename_nor_condition() -> None:
    bare = MemoryStore.space(f"helpers-{next(_numbers)}", "s3", conditional_delete=False)
    bare.write("/a", b"record")
    with pytest.raises(UnsupportedError):
        await move_file(bare.store(), bare.path("a"), bare.path("b"))
    assert bare.files() == {"/a": b"record"}


# -- ending an upload -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landing", [2, 99])
async def test_an_upload_is_aborted_until_it_is_gone(bucket: MemorySpace, landing: int) -> None:
    """S3: what was under way may outlive the first abort. Parts that keep arriving are an error."""
    store, path = FaultyStore(bucket.store()), bucket.path("a")
    upload_id = await store.create_upload(path, stamp="s")
    upload, lists = bucket.uploads._pending[upload_id], itertools.count(1)

    async def part_lands(call: Call) -> None:
        if call.operation == "list_parts" and next(lists) <= landing:
            bucket.uploads._pending[upload_id] = upload

    store.before_call = part_lands
    with use_runtime(VirtualRuntime(1)):
        if landing == 2:
            assert await end_upload(store, path, upload_id)
            assert store.count("abort_upload") == 3
            assert not await is_pending(store, path, upload_id)
            assert not await end_upload(store, path, upload_id)
        else:
            with pytest.raises(StoreConflictError, match="keep arriving"):
                await end_upload(store, path, upload_id)
            assert store.count("abort_upload") == 5


# -- errors that were looked into -----------------------------------------------------------------------------------


@contextmanager
def nothing_kept() -> Iterator[None]:
    """No error of the block waits for the cycle collector; those that reports of other tests hold do not count."""
    gc.collect()
    gc.disable()
    try:
        earlier = _errors()
        yield
        held = {id(one) for one in earlier}
        assert [one for one in _errors() if id(one) not in held] == []
    finally:
        gc.enable()


def _errors() -> list[CommitterError]:
    return [one for one in gc.get_objects() if isinstance(one, CommitterError)]


@pytest.mark.parametrize(
    ("kind", "raises"), [("lost", False), ("unanswered", False), ("unanswered", True), ("", False)]
)
async def test_errors_of_a_creation_are_freed_at_once(space: MemorySpace, kind: FaultKind, *, raises: bool) -> None:
    """Each has the frame of the call in its traceback: a frame that has the error makes a ring of both."""
    faults = [Fault(kind=kind, operation="put", times=None if raises else 1)] if kind else []
    store = FaultyStore(space.store(), faults)
    if not kind:
        space.write("/file", b"theirs")
    with nothing_kept():
        if raises:
            with pytest.raises(StoreOutcomeUnknownError) as caught:
                await create_exclusively(store, space.path("file"), b"mine")
            del caught
        else:
            await create_exclusively(store, space.path("file"), b"mine")


@pytest.mark.parametrize("kind", ["lost", "unanswered", ""])
async def test_errors_of_a_completion_are_freed_at_once(bucket: MemorySpace, kind: FaultKind) -> None:
    """A recovery meets one for each file that was made before."""
    upload = await begun(bucket)
    store = FaultyStore(bucket.store(), [Fault(kind=kind, operation="complete_upload")] if kind else [])
    if not kind:
        await bucket.store().complete_upload(bucket.path("file"), *upload)
    with nothing_kept(), use_runtime(VirtualRuntime()):
        await finish(store, bucket, upload)


@pytest.mark.parametrize("kind", ["lost", "unanswered", ""])
async def test_errors_of_a_block_list_are_freed_at_once(kind: FaultKind) -> None:
    space = MemoryStore.space(f"helpers-{next(_numbers)}", "azure-flat")
    inner = space.store()
    await inner.put_block(space.path("file"), "block", b"data")
    store = FaultyStore(inner, [Fault(kind=kind, operation="put_block_list")] if kind else [])
    if not kind:
        await finish_block_list(inner, space.path("file"), ["block"], stamp="mine", size=4, exclusive=True)
    with nothing_kept(), use_runtime(VirtualRuntime()):
        await finish_block_list(store, space.path("file"), ["block"], stamp="mine", size=4, exclusive=True)
