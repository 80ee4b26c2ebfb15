"""The store for gs: paths beyond the suite: what it sends, and what it makes of what the service does."""

from __future__ import annotations

from typing import Any

import pytest

import committer
from committer.errors import (
    CommitterError,
    ConfigurationError,
    DestinationNotFoundError,
    InvalidPathError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StorePreconditionError,
    StoreThrottledError,
    StoreUnavailableError,
    TaskError,
)
from committer.logs import audit
from committer.stores.gcs import GcsStore
from committer.stores.gcs import writer as gcs_checksums
from committer.stores.gcs import writer as gcs_writer
from committer.stores.gcs.writer import Checksum
from committer.stores.http import Answer, HttpClient
from committer.stores.memory.store import PROFILES
from committer_testing.emulators.gcs import Fault, GcsEmulator, Settings
from committer_testing.emulators.gcs.namespace import Draft
from committer_testing.emulators.gcs.preconditions import Preconditions
from tests.stores.gcs_bucket import ROOT, BucketChannel, bucket_fixtures, requests, serve_store, store_on

CHUNK = 256 * 1024


emulator, store, channel = bucket_fixtures()


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcs_writer, "CHUNK_BYTES", CHUNK)


def test_it_can_what_the_simulator_s_profile_can(emulator: GcsEmulator) -> None:
    """The simulator proves commits with the profile; what may differ says nothing about them."""
    found, profile = store_on(emulator).capabilities, PROFILES["gcs"]
    differing = {name for name in profile.__struct_fields__ if getattr(found, name) != getattr(profile, name)}
    assert differing == {"examination", "default_io_rate"}


# --- What goes over the wire --------------------------------------------------------------------------------------


async def test_calls_of_each_operation(store: GcsStore, emulator: GcsEmulator) -> None:
    status = await store.put(ROOT / "record", b"data", exclusive=True)
    assert requests(emulator) == ["insert"]
    await store.rename_file(ROOT / "record", ROOT / "renamed", identity=status.identity)
    assert requests(emulator) == ["insert", "get", "move"]
    await store.rename_file(ROOT / "renamed", ROOT / "again")
    await store.delete_file(ROOT / "again")
    assert requests(emulator)[3:] == ["move", "delete"]
    writer = await store.open_writer(ROOT / "file")
    await writer.write(b"data")
    await writer.close()
    assert requests(emulator)[5:] == ["get", "insert"]
    tokens = [one.client_request_id for one in emulator.conduct.log if one.operation not in {"get", "list"}]
    assert "" not in tokens
    assert len(tokens) == len(set(tokens))
    assert {one.user_agent for one in emulator.conduct.log} == {f"lake-committer/{committer.__version__}"}


async def test_each_file_has_a_stamp_of_its_own_that_names_its_attempt(store: GcsStore, emulator: GcsEmulator) -> None:
    with audit(ji="job-1", ta="attempt_1", st="task"):
        stamped = [await store.put(ROOT / f"{number}", b"same") for number in range(3)]
    assert len({one.identity for one in stamped}) == 3
    kept = [one.metadata for one in emulator.namespace.buckets["data"].objects.values()]
    assert all(str((one or {}).get("committer-attempt")).startswith("attempt_1/") for one in kept)


async def test_what_others_wrote_is_known_by_its_checksum(store: GcsStore, channel: BucketChannel) -> None:
    await channel.write("a", b"same")
    await channel.write("b", b"same")
    await channel.write("c", b"diff")
    found = {status.path.name: status.identity async for status in store.list(ROOT)}
    assert found["a"] == found["b"] != found["c"]
    own = await store.put(ROOT / "d", b"same")
    assert own.identity not in found.values()


@pytest.mark.parametrize("library", [True, False])
async def test_the_service_verifies_what_is_written(
    store: GcsStore, emulator: GcsEmulator, monkeypatch: pytest.MonkeyPatch, library: bool
) -> None:
    if not library:
        monkeypatch.setattr(gcs_checksums, "_extend", None)
        monkeypatch.setattr(Checksum, "field", "md5Hash")
        monkeypatch.setattr(Checksum, "header", "md5")
    await store.put(ROOT / "right", b"data")
    monkeypatch.setattr(Checksum, "text", lambda _self: "AAAAAA==")
    with pytest.raises(CommitterError):
        await store.put(ROOT / "wrong", b"data")
    assert list(emulator.namespace.buckets["data"].objects) == ["test/root/right"]


async def test_placeholders_of_other_tools_are_directories(
    store: GcsStore, emulator: GcsEmulator, channel: BucketChannel
) -> None:
    """As Google's connector for Hadoop makes them."""
    for name in ("test/root/", "test/root/empty/"):
        emulator.namespace.insert("data", name, b"", Draft(), Preconditions({}))
    await channel.write("file", b"1")
    assert {(one.path.name, one.is_directory) async for one in store.list(ROOT)} == {("empty", True), ("file", False)}
    assert [one async for one in store.list(ROOT / "empty")] == []
    assert (await store.status(ROOT / "empty")).is_directory
    assert await store.delete_directory(ROOT / "empty", recursive=False)
    assert await store.delete_directory(ROOT, recursive=True)
    assert emulator.namespace.buckets["data"].objects == {}


# --- Lost answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reset-after", "reset", "error-after"])
@pytest.mark.parametrize("operation", ["move", "insert", "delete"])
async def test_no_change_is_ever_sent_again_by_itself(
    store: GcsStore, emulator: GcsEmulator, operation: str, kind: Any
) -> None:
    await store.put(ROOT / "file", b"1")
    emulator.conduct.faults.append(Fault(kind, operation=operation, status=503))
    emulator.conduct.log.clear()
    changes = {
        "move": lambda: store.rename_file(ROOT / "file", ROOT / "new"),
        "insert": lambda: store.put(ROOT / "new", b"2", exclusive=True),
        "delete": lambda: store.delete_file(ROOT / "file"),
    }
    with pytest.raises(StoreOutcomeUnknownError):
        await changes[operation]()
    assert requests(emulator, operation) == [operation]


@pytest.mark.parametrize("operation", ["get", "list", "read"])
async def test_a_lost_answer_to_a_question_is_no_doubt(store: GcsStore, emulator: GcsEmulator, operation: str) -> None:
    await store.put(ROOT / "file", b"1")
    emulator.conduct.faults.append(Fault("reset-after", operation=operation))
    asked = {
        "get": lambda: store.status(ROOT / "file"),
        "list": lambda: anext(aiter(store.list(ROOT))),
        "read": lambda: store.read(ROOT / "file", limit=1),
    }
    with pytest.raises(StoreUnavailableError):
        await asked[operation]()


async def test_a_move_that_was_done_already_is_told_as_unknown(store: GcsStore) -> None:
    status = await store.put(ROOT / "file", b"1")
    await store.rename_file(ROOT / "file", ROOT / "new", identity=status.identity)
    with pytest.raises(StoreNotFoundError) as caught:
        await store.rename_file(ROOT / "file", ROOT / "new", identity=status.identity)
    assert (caught.value.outcome, caught.value.path) == ("unknown", str(ROOT / "file"))
    with pytest.raises(StoreNotFoundError) as caught:
        await store.rename_file(ROOT / "other", ROOT / "new", identity="another#one")
    assert caught.value.outcome == "unchanged"


async def test_of_two_conditions_it_finds_out_which_failed(store: GcsStore, emulator: GcsEmulator) -> None:
    """The source is replaced between the look and the move; then the destination is taken instead."""
    status = await store.put(ROOT / "file", b"1")
    emulator.conduct.faults.append(Fault("error", operation="move", status=412, code="conditionNotMet", count=2))
    with pytest.raises(StorePreconditionError):
        await store.rename_file(ROOT / "file", ROOT / "new", identity=status.identity)
    await store.put(ROOT / "new", b"2")
    with pytest.raises(StoreExistsError):
        await store.rename_file(ROOT / "file", ROOT / "new", identity=status.identity)
    assert (await store.read(ROOT / "file", limit=9), await store.read(ROOT / "new", limit=9)) == (b"1", b"2")


@pytest.mark.parametrize("kind", ["reset-after", "reset"])
async def test_a_small_file_whose_answer_was_lost_is_looked_for(
    store: GcsStore, emulator: GcsEmulator, kind: Any, channel: BucketChannel
) -> None:
    writer = await store.open_writer(ROOT / "small")
    await writer.write(b"data")
    emulator.conduct.faults.append(Fault(kind, operation="insert"))
    if kind == "reset":
        with pytest.raises(StoreOutcomeUnknownError):
            await writer.close()
        assert await channel.files() == {}
        return
    status = await writer.close()
    assert status.identity == (await store.status(ROOT / "small")).identity


# --- Long files ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("length", [CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 77])
async def test_a_long_file_goes_by_the_chunk_and_appears_at_its_end(
    store: GcsStore, emulator: GcsEmulator, channel: BucketChannel, length: int
) -> None:
    data = bytes(index % 251 for index in range(length))
    writer = await store.open_writer(ROOT / "large")
    for start in range(0, length, 100_000):
        await writer.write(data[start : start + 100_000])
        assert await channel.files() == {}
    status = await writer.close()
    assert await channel.files() == {"large": data}
    assert (status.size, status.identity) == (length, (await store.status(ROOT / "large")).identity)
    assert requests(emulator, "upload-chunk") == ["upload-chunk"] * (length // CHUNK + 1)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("then", ["close", "write other bytes", "write after a refused close"])
async def test_what_a_refused_call_left_out_is_no_end(
    store: GcsStore, emulator: GcsEmulator, channel: BucketChannel, then: str
) -> None:
    """A caller who ignores a refusal gets no file that lacks bytes, or has others between."""
    emulator.conduct.faults.append(Fault("error", operation="upload-chunk", skip=1, count=1, status=503))
    writer = await store.open_writer(ROOT / "large")
    with pytest.raises(StoreUnavailableError):
        if then == "write after a refused close":
            await writer.write(bytes(CHUNK + 5))
            await writer.close()
        else:
            await writer.write(bytes(2 * CHUNK))
    with pytest.raises(TaskError):
        await (writer.close() if then == "close" else writer.write(b"other" * CHUNK))
    await writer.abort()
    assert await channel.files() == {}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kind", ["reset", "reset-after", "error", "error-after"])
@pytest.mark.parametrize("number", range(5))
async def test_a_call_that_failed_is_made_again(
    store: GcsStore, emulator: GcsEmulator, channel: BucketChannel, number: int, kind: Any
) -> None:
    """Each chunk's answer in turn, and that of the end; what has come is asked for, and nothing is there twice."""
    data = bytes(index % 251 for index in range(3 * CHUNK + 77))
    emulator.conduct.faults.append(Fault(kind, operation="upload-chunk", skip=number, count=1, status=503))
    writer = await store.open_writer(ROOT / "large")
    for call in [
        lambda: writer.write(data[: CHUNK * 2 + 5]),
        lambda: writer.write(data[CHUNK * 2 + 5 :]),
        writer.close,
    ]:
        for _ in range(3):
            try:
                await call()
            except StoreUnavailableError:
                continue
            break
        else:
            pytest.fail("it did not get well")
    assert await channel.files() == {"large": data}


@pytest.mark.usefixtures("small_chunks")
async def test_a_name_that_is_taken_meanwhile_is_left_alone(store: GcsStore, channel: BucketChannel) -> None:
    writer = await store.open_writer(ROOT / "large")
    await writer.write(bytes(CHUNK))
    await channel.write("large", b"other")
    with pytest.raises(StoreExistsError):
        await writer.close()
    with pytest.raises(StoreExistsError):
        await store.open_writer(ROOT / "large")
    assert await channel.files() == {"large": b"other"}


@pytest.mark.usefixtures("small_chunks")
async def test_an_upload_is_given_up(store: GcsStore, emulator: GcsEmulator, channel: BucketChannel) -> None:
    writer = await store.open_writer(ROOT / "large")
    await writer.write(bytes(CHUNK))
    await writer.abort()
    await writer.abort()
    assert requests(emulator, "cancel-upload") == ["cancel-upload"]
    with pytest.raises(TaskError):
        await writer.write(b"more")
    assert await channel.files() == {}


@pytest.mark.usefixtures("small_chunks")
async def test_an_upload_that_is_known_no_more_cannot_go_on(store: GcsStore, emulator: GcsEmulator) -> None:
    writer = await store.open_writer(ROOT / "large")
    await writer.write(bytes(CHUNK))
    (session,) = emulator.api.uploads.sessions
    emulator.api.uploads.sessions.clear()
    with pytest.raises(TaskError, match="known no more") as caught:
        await writer.write(bytes(CHUNK))
    # Its URL authorises by itself.
    assert session not in str(caught.value)


# --- Refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (401, "authError", StorePermissionError),
        (403, "forbidden", StorePermissionError),
        (403, "rateLimitExceeded", StoreThrottledError),
        (408, "requestTimeout", StoreOutcomeUnknownError),
        (429, "rateLimitExceeded", StoreThrottledError),
        (409, "conflict", StoreError),
        (400, "invalid", ConfigurationError),
        (500, "internalError", StoreOutcomeUnknownError),
        (502, "backendError", StoreOutcomeUnknownError),
        (503, "backendError", StoreOutcomeUnknownError),
    ],
)
async def test_what_a_refusal_means(
    store: GcsStore, emulator: GcsEmulator, status: int, code: str, expected: type[CommitterError]
) -> None:
    emulator.conduct.faults.append(Fault("error", status=status, code=code, retry_after="3"))
    with pytest.raises(expected) as caught:
        await store.delete_file(ROOT / "file")
    if isinstance(caught.value, StoreThrottledError):
        assert caught.value.retry_after_s == 3


async def test_a_bucket_that_is_not_there(emulator: GcsEmulator) -> None:
    emulator.namespace.buckets.clear()
    store = store_on(emulator)
    for call in (
        store.status(ROOT),
        store.put(ROOT / "a", b""),
        store.rename_file(ROOT / "a", ROOT / "b"),
        store.delete_file(ROOT / "a"),
        store.read(ROOT / "a", limit=1),
        store.open_writer(ROOT / "a"),
    ):
        with pytest.raises(DestinationNotFoundError):
            await call
    await store.close()


async def test_a_retained_object_is_refused_with_what_to_do(store: GcsStore, emulator: GcsEmulator) -> None:
    await store.put(ROOT / "file", b"1")
    held = emulator.namespace.buckets["data"]
    held.configured["retentionPolicy"] = {"retentionPeriod": "3600"}
    for call in (store.delete_file(ROOT / "file"), store.rename_file(ROOT / "file", ROOT / "new")):
        with pytest.raises(StorePermissionError, match="retained until") as caught:
            await call
        assert "without a retention policy" in caught.value.next_step
    held.configured.clear()
    held.objects["test/root/file"].temporary_hold = True
    with pytest.raises(StorePermissionError, match="under a hold"):
        await store.put(ROOT / "file", b"2")


@pytest.mark.parametrize("name", ["line\nbreak", "x" * 1025])
async def test_names_that_the_service_does_not_take(store: GcsStore, emulator: GcsEmulator, name: str) -> None:
    with pytest.raises(InvalidPathError):
        await store.put(ROOT / name, b"")
    assert not emulator.conduct.log


async def test_findings(emulator: GcsEmulator) -> None:
    store = store_on(emulator)
    found = {one.name: one.verdict for one in await store.findings(ROOT)}
    assert found == {"renames": "ok", "namespace": "ok", "kept objects": "ok", "permissions": "ok"}
    emulator.namespace.buckets["data"].configured["softDeletePolicy"] = {"retentionDurationSeconds": "604800"}
    kept = {one.name: one for one in await store.findings(ROOT)}["kept objects"]
    assert (kept.verdict, "7 days" in kept.found) == ("warning", True)
    emulator.namespace.buckets["data"].configured["retentionPolicy"] = {"retentionPeriod": "60"}
    assert {one.name: one.verdict for one in await store.findings(ROOT)}["kept objects"] == "failed"
    await store.close()
    denied = frozenset({"storage.objects.move", "storage.buckets.get"})
    async with serve_store(Settings(denied=denied)) as (store, _emulator):
        asked = {one.name: one for one in await store.findings(ROOT)}
        assert (asked["permissions"].verdict, asked["kept objects"].verdict) == ("failed", "skipped")
        assert "storage.objects.move" in asked["permissions"].found


async def test_answer_to_a_change_that_cannot_be_read_leaves_its_outcome_open(
    emulator: GcsEmulator, store: GcsStore, channel: BucketChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something on the way answers for the service: it was done, or not."""
    send = HttpClient.send

    async def spoiled(self: HttpClient, method: str, url: str, *rest: Any, **more: Any) -> Answer:
        answer = await send(self, method, url, *rest, **more)
        return Answer(200, answer.headers, b"<html>") if method in ("POST", "PUT") and "/upload/" in url else answer

    monkeypatch.setattr(HttpClient, "send", spoiled)
    with pytest.raises(StoreOutcomeUnknownError):
        await store.put(ROOT / "record", b"1", exclusive=True)
    writer = await store.open_writer(ROOT / "file")
    await writer.write(b"22")
    assert (await writer.close()).size == 2
    assert await channel.files() == {"record": b"1", "file": b"22"}


@pytest.mark.parametrize("answered", [b'{"size": "many", "generation": "1"}', b'{"size": 3}', b"[]"])
async def test_answers_that_no_service_gives_are_errors_of_the_store(
    store: GcsStore, monkeypatch: pytest.MonkeyPatch, answered: bytes
) -> None:
    async def spoiled(*_rest: Any, **_more: Any) -> Answer:
        return Answer(200, {}, answered)

    monkeypatch.setattr(HttpClient, "send", spoiled)
    with pytest.raises(StoreUnavailableError):
        await store.status(ROOT / "file")
    with pytest.raises(StoreOutcomeUnknownError):
        await store.put(ROOT / "file", b"")
    verdicts = {one.name: one.verdict for one in await store.findings(ROOT)}
    assert verdicts["permissions"] != "ok"
