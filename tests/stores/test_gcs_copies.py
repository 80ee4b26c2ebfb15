"""Renames on a service that knows no moves: a copy and a delete, each on a condition, and what becomes of lost answers."""

from __future__ import annotations

from typing import Any

import pytest

from committer.errors import (
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    StoreThrottledError,
    StoreUnavailableError,
    UnsupportedError,
)
from committer.stores.base import FileStatus
from committer.stores.gcs import GcsStore
from committer.stores.http import Answer, HttpClient
from committer_testing.emulators.gcs import Fault, GcsEmulator, Settings
from committer_testing.emulators.gcs.objects import StoredObject
from tests.stores.gcs_bucket import ROOT, BucketChannel, bucket_fixtures, requests, serve_store

SOURCE, TARGET = ROOT / "source", ROOT / "target"


emulator, store, channel = bucket_fixtures(Settings(has_move=False))


@pytest.fixture
async def known(store: GcsStore, emulator: GcsEmulator) -> FileStatus:
    """A file to rename, by a store that knows by now that the service has no moves."""
    await store.put(ROOT / "first", b"")
    await store.rename_file(ROOT / "first", ROOT / "second")
    await store.delete_file(ROOT / "second")
    status = await store.put(SOURCE, b"data")
    emulator.conduct.log.clear()
    return status


def kept(emulator: GcsEmulator, name: str) -> StoredObject:
    return emulator.namespace.buckets["data"].objects[f"test/root/{name}"]


# --- Whether it has moves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 404, 405, 501])
async def test_a_service_without_moves_is_asked_once(status: int) -> None:
    async with serve_store(Settings(has_move=False, missing_move_status=status)) as (store, emulator):
        await store.probe(ROOT)
        assert emulator.namespace.buckets["data"].objects == {}
        assert len(emulator.conduct.log) <= 20 + (status == 404)
        for number in range(3):
            put = await store.put(ROOT / f"{number}", b"1")
            await store.rename_file(ROOT / f"{number}", ROOT / f"{number}-renamed", identity=put.identity)
        assert requests(emulator, "move") == ["move"]
        assert requests(emulator)[-4:] == ["insert", "get", "rewrite", "delete"]


async def test_a_service_that_moved_once_is_never_taken_for_one_without() -> None:
    async with serve_store() as (store, emulator):
        await store.put(SOURCE, b"1")
        await store.rename_file(SOURCE, TARGET)
        emulator.conduct.faults.append(Fault("error", operation="move", status=501, code="notImplemented"))
        with pytest.raises(StoreError):
            await store.rename_file(TARGET, SOURCE)
        assert requests(emulator, "rewrite") == []


@pytest.mark.parametrize("has_move", [True, False])
async def test_doctor_asks_for_the_right_to_move_where_there_are_moves(has_move: bool) -> None:
    lacking = Settings(has_move=has_move, denied=frozenset({"storage.objects.move"}))
    async with serve_store(lacking) as (store, _emulator):
        found = {one.name: one for one in await store.findings(ROOT)}["permissions"]
        assert found.verdict == ("failed" if has_move else "ok")
        assert ("copied" in found.found) is not has_move


@pytest.mark.parametrize("denied", ["create", "delete", "get"])
async def test_doctor_names_the_rights_that_copies_need(denied: str) -> None:
    lacking = Settings(has_move=False, denied=frozenset({f"storage.objects.{denied}"}))
    async with serve_store(lacking) as (store, _emulator):
        # What the service says of a move tells nothing of one who may not create or delete.
        store._renames._moves = False
        found = {one.name: one for one in await store.findings(ROOT)}["permissions"]
        assert (found.verdict, found.found) == ("failed", f"missing: storage.objects.{denied}")
        assert "create, get, list and delete" in found.next_step


@pytest.mark.parametrize(("has_move", "verdict"), [(True, "ok"), (False, "warning")])
async def test_doctor_says_how_files_are_renamed(has_move: bool, verdict: str) -> None:
    async with serve_store(Settings(has_move=has_move)) as (store, emulator):
        for _ in range(2):
            found = {one.name: one for one in await store.findings(ROOT)}["renames"]
            assert (found.verdict, "moveTo" in found.found) == (verdict, True)
        assert requests(emulator, "move") == ["move"]
        assert emulator.namespace.buckets["data"].objects == {}


@pytest.mark.parametrize(
    "ignored",
    [
        ("rewrite", "ifSourceGenerationMatch"),
        ("rewrite", "ifGenerationMatch"),
        ("delete", "ifGenerationMatch"),
        ("move", "ifSourceGenerationMatch"),
        ("move", "ifSourceMetagenerationMatch"),
        ("move", "ifGenerationMatch"),
        ("insert", "ifGenerationMatch"),
    ],
    ids="-".join,
)
async def test_a_service_that_ignores_a_condition_is_refused_at_setup(ignored: tuple[str, str]) -> None:
    """As fake-gcs-server does, which heeds those of inserts only."""
    settings = Settings(has_move=ignored[0] == "move", ignored_conditions=frozenset({ignored}))
    async with serve_store(settings) as (store, emulator):
        with pytest.raises(UnsupportedError, match=ignored[1]):
            await store.probe(ROOT)
        assert emulator.namespace.buckets["data"].objects == {}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("trial", ["move", "rewrite"])
async def test_a_trial_that_the_service_did_not_answer_proves_nothing(trial: str, status: int) -> None:
    async with serve_store(Settings(has_move=trial == "move")) as (store, emulator):
        # A rename, and one that is refused, come first.
        emulator.conduct.faults.append(Fault("error", operation=trial, skip=2, status=status, code="backendError"))
        with pytest.raises(StoreThrottledError if status == 429 else StoreOutcomeUnknownError):
            await store.probe(ROOT)
        assert emulator.namespace.buckets["data"].objects == {}


# --- Renames ------------------------------------------------------------------------------------------------------


async def test_what_was_made_with_a_file_is_kept(
    store: GcsStore, emulator: GcsEmulator, known: FileStatus, channel: BucketChannel
) -> None:
    before = kept(emulator, "source")
    await store.rename_file(SOURCE, TARGET, identity=known.identity)
    assert requests(emulator) == ["get", "rewrite", "delete"]
    after = kept(emulator, "target")
    assert (after.metadata, after.content, after.crc32c) == (before.metadata, before.content, before.crc32c)
    assert (await store.status(TARGET)).identity == known.identity
    assert await channel.files() == {"target": b"data"}


async def test_a_copy_in_parts_is_gone_on_with() -> None:
    async with serve_store(Settings(has_move=False, rewrite_bytes=3)) as (store, emulator):
        await store.put(SOURCE, b"ten bytes.")
        await store.rename_file(SOURCE, TARGET)
        assert requests(emulator, "rewrite") == ["rewrite"] * 4
        assert await BucketChannel(emulator).files() == {"target": b"ten bytes."}
        # The token is known no more: nothing is there, and the caller may begin anew.
        emulator.conduct.faults.append(Fault("error", operation="rewrite", status=410, skip=1, count=1))
        with pytest.raises(StoreUnavailableError):
            await store.rename_file(TARGET, SOURCE)
        assert await BucketChannel(emulator).files() == {"target": b"ten bytes."}


@pytest.mark.usefixtures("known")
async def test_what_is_not_what_was_seen_stays(
    store: GcsStore, emulator: GcsEmulator, channel: BucketChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer replaces the source right before the copy, and then right before the delete."""
    send = store._wire.send
    at = ""

    async def between(operation: str, method: str, *more: Any, **named: Any) -> Any:
        if operation == "rename_file" and method == at:
            await channel.write("source", b"other")
        return await send(operation, method, *more, **named)

    monkeypatch.setattr(store._wire, "send", between)
    at = "POST"
    seen = await store.status(SOURCE)
    with pytest.raises(StorePreconditionError):
        await store.rename_file(SOURCE, TARGET, identity=seen.identity)
    assert await channel.files() == {"source": b"other"}
    at = "DELETE"
    seen = await store.put(SOURCE, b"data")
    await store.rename_file(SOURCE, TARGET, identity=seen.identity)
    assert await channel.files() == {"source": b"other", "target": b"data"}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("half", ["rewrite", "delete"])
@pytest.mark.parametrize("kind", ["reset-after", "error-after", "reset"])
async def test_a_lost_answer_is_looked_at(
    store: GcsStore,
    emulator: GcsEmulator,
    known: FileStatus,
    channel: BucketChannel,
    kind: Any,
    half: str,
    replace: bool,
) -> None:
    emulator.conduct.faults.append(Fault(kind, operation=half, status=503, count=1))
    if (half, kind) == ("rewrite", "reset"):
        with pytest.raises(StoreOutcomeUnknownError):
            await store.rename_file(SOURCE, TARGET, identity=known.identity, replace=replace)
        assert await channel.files() == {"source": b"data"}
        return
    await store.rename_file(SOURCE, TARGET, identity=known.identity, replace=replace)
    assert await channel.files() == {"target": b"data"}
    # Only a delete that was seen not to be done is sent again.
    sent = ["get", "rewrite", "get", "delete"] if half == "rewrite" else ["get", "rewrite", "delete", "get"]
    assert requests(emulator) == ["get"] * replace + sent + ["delete"] * (kind == "reset")


async def test_a_delete_whose_answers_are_all_lost_is_unknown(
    store: GcsStore, emulator: GcsEmulator, known: FileStatus, channel: BucketChannel
) -> None:
    emulator.conduct.faults.append(Fault("reset", operation="delete"))
    with pytest.raises(StoreOutcomeUnknownError):
        await store.rename_file(SOURCE, TARGET, identity=known.identity)
    assert await channel.files() == {"source": b"data", "target": b"data"}


@pytest.mark.parametrize("replace", [False, True])
async def test_a_rename_that_got_half_way_is_gone_on_with(
    store: GcsStore, emulator: GcsEmulator, known: FileStatus, channel: BucketChannel, replace: bool
) -> None:
    """The copy is not made again, which nothing would keep from replacing what another one put there since."""
    emulator.conduct.faults.append(Fault("error", operation="delete", status=429, count=1))
    with pytest.raises(StoreThrottledError):
        await store.rename_file(SOURCE, TARGET, identity=known.identity, replace=replace)
    assert await channel.files() == {"source": b"data", "target": b"data"}
    copied = kept(emulator, "target").generation
    await store.rename_file(SOURCE, TARGET, identity=known.identity, replace=replace)
    assert await channel.files() == {"target": b"data"}
    assert kept(emulator, "target").generation == copied


async def test_a_delete_that_is_refused_says_what_stands_where(
    store: GcsStore, emulator: GcsEmulator, known: FileStatus
) -> None:
    emulator.conduct.faults.append(Fault("error", operation="delete", status=403, code="forbidden"))
    with pytest.raises(StorePermissionError) as caught:
        await store.rename_file(SOURCE, TARGET, identity=known.identity)
    assert (caught.value.outcome, str(TARGET) in caught.value.next_step) == ("partial", True)


async def test_the_same_bytes_of_another_writer_are_no_copy(
    store: GcsStore, emulator: GcsEmulator, known: FileStatus, channel: BucketChannel
) -> None:
    await channel.write("target", b"data")
    with pytest.raises(StoreExistsError):
        await store.rename_file(SOURCE, TARGET, identity=known.identity)
    await channel.write("source", b"data")
    with pytest.raises(StoreExistsError):
        await store.rename_file(SOURCE, TARGET)
    assert set(await channel.files()) == {"source", "target"}


async def test_a_rename_that_is_done_is_told_as_unknown(store: GcsStore, known: FileStatus) -> None:
    await store.rename_file(SOURCE, TARGET, identity=known.identity)
    with pytest.raises(StoreNotFoundError) as caught:
        await store.rename_file(SOURCE, TARGET, identity=known.identity)
    assert caught.value.outcome == "unknown"


# --- Jobs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answered", [b'{"done": false, "rewriteToken": "t", "totalBytesRewritten": "many"}', b"<html>"]
)
async def test_a_copy_s_answer_that_cannot_be_read_leaves_its_outcome_open(
    store: GcsStore, emulator: GcsEmulator, known: FileStatus, monkeypatch: pytest.MonkeyPatch, answered: bytes
) -> None:
    """Nothing was copied: the look for the copy finds none."""
    send = HttpClient.send

    async def spoiled(self: HttpClient, method: str, url: str, *rest: Any, **more: Any) -> Answer:
        if "/rewriteTo/" in url:
            return Answer(200, {}, answered)
        return await send(self, method, url, *rest, **more)

    monkeypatch.setattr(HttpClient, "send", spoiled)
    with pytest.raises(StoreOutcomeUnknownError):
        await store.rename_file(SOURCE, TARGET, identity=known.identity)
    assert kept(emulator, "source").data == b"data"
