"""Functions over any store, where answers are lost."""

from __future__ import annotations

import itertools

import pytest

from committer.errors import RecordError, StoreNotFoundError, StoreOutcomeUnknownError, StoreUnavailableError
from committer.stores.helpers import create_exclusively, exists, status_or_none, walk
from committer.stores.memory import MemorySpace, MemoryStore
from committer.testing.faults import Fault, FaultyStore

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


async def test_a_lost_answer_is_found_to_be_ours(space: MemorySpace) -> None:
    store = FaultyStore(space.store(), [Fault(kind="lost", operation="put")])
    assert await create_exclusively(store, space.path("file"), b"mine") == b"mine"
    assert store.count("put") == 1


async def test_a_lost_answer_is_found_to_be_anothers(space: MemorySpace) -> None:
    space.write("/file", b"theirs")
    store = FaultyStore(space.store(), [Fault(kind="lost", operation="put")])
    assert await create_exclusively(store, space.path("file"), b"mine") == b"theirs"
    assert space.files() == {"/file": b"theirs"}


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
