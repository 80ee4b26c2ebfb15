"""Deletes of the store for gs: paths: on a condition, and many in one request."""

from __future__ import annotations

from typing import Any

import pytest

from committer.errors import (
    DestinationNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    StoreThrottledError,
)
from committer.stores.gcs import GcsStore
from committer_testing.emulators.gcs import Fault, GcsEmulator, Settings, serve
from committer_testing.emulators.gcs.wire import Answer
from tests.stores.gcs_bucket import ROOT, BucketChannel, bucket_fixtures, requests, store_on

emulator, store, channel = bucket_fixtures(Settings(list_page=250))


@pytest.fixture
def sent(store: GcsStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes over the wire, a batch as one."""
    found: list[str] = []
    send = store._http.send

    async def noted(method: str, url: str, *more: Any, **named: Any) -> Any:
        found.append(f"{method} {'batch' if '/batch/' in url else ''}".strip())
        return await send(method, url, *more, **named)

    monkeypatch.setattr(store._http, "send", noted)
    return found


async def filled(channel: BucketChannel, count: int, name: str = "d") -> list[Any]:
    for number in range(count):
        await channel.write(f"{name}/ü {number:04}", b"")
    return [ROOT / f"{name}/ü {number:04}" for number in range(count)]


async def test_a_directory_goes_by_the_hundred(store: GcsStore, channel: BucketChannel, sent: list[str]) -> None:
    await filled(channel, 520)
    await channel.write("d2/stays", b"")
    assert await store.delete_directory(ROOT / "d", recursive=True)
    assert set(await channel.files()) == {"d2/stays"}
    # Of each page of 250 three.
    assert (sent.count("GET"), sent.count("POST batch"), len(sent)) == (3, 7, 10)


async def test_each_delete_of_a_batch_has_a_token_of_its_own(
    store: GcsStore, emulator: GcsEmulator, channel: BucketChannel
) -> None:
    await store.delete_files(dict.fromkeys(await filled(channel, 5)))
    tokens = {one.client_request_id for one in emulator.conduct.log if one.operation == "delete"}
    assert len(tokens - {""}) == 5


async def test_the_project_that_pays_is_named_in_each(emulator: GcsEmulator, channel: BucketChannel) -> None:
    store = store_on(emulator, user_project="p")
    assert not await store.delete_files(dict.fromkeys(await filled(channel, 3)))
    assert await channel.files() == {}
    await store.close()


async def test_what_was_refused_alone_is_told(store: GcsStore, emulator: GcsEmulator, channel: BucketChannel) -> None:
    paths = await filled(channel, 6)
    for index, (status, code) in enumerate([(429, "rateLimitExceeded"), (403, "forbidden"), (503, "backendError")]):
        emulator.conduct.faults.append(
            Fault(
                "error",
                operation="delete",
                path_prefix=f"data/test/root/d/ü 000{index}",
                status=status,
                code=code,
                retry_after="7",
            )
        )
    failed = await store.delete_files(dict.fromkeys([*paths, ROOT / "missing"]))
    assert {path: type(error) for path, error in failed.items()} == {
        paths[0]: StoreThrottledError,
        paths[1]: StorePermissionError,
        paths[2]: StoreOutcomeUnknownError,
    }
    throttled = failed[paths[0]]
    assert isinstance(throttled, StoreThrottledError)
    assert throttled.retry_after_s == 7
    assert set(await channel.files()) == {f"d/ü 000{number}" for number in range(3)}


async def test_a_batch_whose_answer_was_lost_is_unknown(
    store: GcsStore, emulator: GcsEmulator, channel: BucketChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = await filled(channel, 4)
    emulator.conduct.faults.append(Fault("reset-after", operation="delete", skip=2, count=1))
    with pytest.raises(StoreOutcomeUnknownError):
        await store.delete_files(dict.fromkeys(paths))
    assert len(await channel.files()) == 1
    assert not await store.delete_files(dict.fromkeys(paths))
    # An answer that ends early.
    from committer_testing.emulators.gcs import batch

    joined = batch.joined
    monkeypatch.setattr(batch, "joined", lambda answers: joined(answers[:2]))
    with pytest.raises(StoreOutcomeUnknownError, match="not whole"):
        await store.delete_files(dict.fromkeys(paths))


async def test_a_server_without_batches_gets_a_call_for_each(
    store: GcsStore, emulator: GcsEmulator, channel: BucketChannel, monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    """As googleapis' storage-testbench, which says 501."""

    async def not_known(*_: Any) -> Answer:
        return Answer(501)

    monkeypatch.setattr(emulator, "_batch", not_known)
    for name in ("a", "b"):
        assert not await store.delete_files(dict.fromkeys(await filled(channel, 3, name)))
    assert await channel.files() == {}
    # Asked once, remembered.
    assert (sent.count("POST batch"), sent.count("DELETE")) == (1, 6)


async def test_a_bucket_that_is_gone(store: GcsStore, emulator: GcsEmulator) -> None:
    emulator.namespace.buckets.clear()
    failed = await store.delete_files(dict.fromkeys([ROOT / "a", ROOT / "b"]))
    assert {type(error) for error in failed.values()} == {DestinationNotFoundError}


@pytest.mark.parametrize("kind", ["condition", "not-found"])
async def test_a_file_that_changes_under_a_delete_stays(
    channel: BucketChannel, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Right before the delete another writer replaces the file, and then takes it away."""
    async with serve(Settings(condition_on_absent=kind)) as emulator:
        emulator.make_bucket("data")
        store, beside = store_on(emulator), BucketChannel(emulator)
        send, removes = store._wire.send, False

        async def between(operation: str, method: str, *more: Any, **named: Any) -> Any:
            if method == "DELETE":
                if removes:
                    emulator.namespace.buckets["data"].remove("test/root/file")
                else:
                    await beside.write("file", b"other")
            return await send(operation, method, *more, **named)

        seen = await store.put(ROOT / "file", b"1")
        monkeypatch.setattr(store._wire, "send", between)
        assert seen.identity is not None
        with pytest.raises(StorePreconditionError):
            await store.delete_file_if(ROOT / "file", identity=seen.identity)
        assert await beside.files() == {"file": b"other"}
        removes = True
        other = (await store.status(ROOT / "file")).identity
        assert other is not None
        assert not await store.delete_file_if(ROOT / "file", identity=other)
        assert requests(emulator, "delete") == ["delete", "delete"]
        await store.close()
