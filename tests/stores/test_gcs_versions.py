"""Files published by one request on Google Cloud Storage: what its conditions prove, and what follows a refusal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import committer
from committer.errors import CommitterError, StoreNotFoundError, StoreOutcomeUnknownError, StorePreconditionError
from committer.paths import StorePath
from committer.records.manifest import decode_task_manifest, encode_task_manifest
from committer.stores.base import FileStatus
from committer.stores.gcs import GcsStore
from committer_testing.emulators.gcs import Fault, GcsEmulator
from tests.stores.gcs_bucket import ROOT, BucketChannel, bucket_fixtures, requests, store_on

SOURCE, TARGET = ROOT / "source", ROOT / "target"
TABLE = ROOT / "table"
FILES = {f"p={number % 2}/part-{number}.csv": b"x" * number for number in range(6)}


emulator, store, _channel = bucket_fixtures()


async def publish(store: GcsStore, status: FileStatus) -> None:
    assert status.version is not None
    await store.rename_file(SOURCE, TARGET, version=status.version, identity=status.identity)


def object_at(emulator: GcsEmulator, name: str) -> bytes | None:
    found = emulator.namespace.buckets["data"].objects.get(f"test/root/{name}")
    return None if found is None else found.data


async def test_one_request(store: GcsStore, emulator: GcsEmulator) -> None:
    status = await store.put(SOURCE, b"data")
    emulator.conduct.log.clear()
    await publish(store, status)
    assert requests(emulator) == ["move"]
    assert (await store.status(TARGET)).identity == status.identity


async def test_a_writer_knows_the_generation(store: GcsStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("committer.stores.gcs.writer.CHUNK_BYTES", 256 * 1024)
    for data in (b"short", b"long" * 256 * 1024):
        writer = await store.open_writer(SOURCE)
        await writer.write(data)
        assert (await writer.close()).version == (await store.status(SOURCE)).version
        await store.delete_file(SOURCE)


async def test_an_object_whose_metadata_changed_is_looked_at(store: GcsStore, emulator: GcsEmulator) -> None:
    """Its generation stays, and may belong to another stamp by now."""
    status = await store.put(SOURCE, b"data")
    found = emulator.namespace.buckets["data"].objects["test/root/source"]
    found.metadata = {**(found.metadata or {}), "more": "text"}
    found.metageneration += 1
    await publish(store, status)
    assert requests(emulator)[1:] == ["move", "get", "move"]
    await store.rename_file(TARGET, SOURCE)
    status = await store.status(SOURCE)
    found = emulator.namespace.buckets["data"].objects["test/root/source"]
    found.metadata = {"committer-attempt": "another"}
    found.metageneration += 1
    with pytest.raises(StorePreconditionError):
        await publish(store, status)
    assert object_at(emulator, "target") is None


async def test_a_file_that_was_published_before_is_named_as_such(store: GcsStore, emulator: GcsEmulator) -> None:
    status = await store.put(SOURCE, b"data")
    await publish(store, status)
    with pytest.raises(StoreNotFoundError) as caught:
        await publish(store, status)
    assert caught.value.outcome == "unknown"
    assert requests(emulator)[1:] == ["move", "move", "get"]


@pytest.mark.parametrize("place", ["file", "metadata", "nothing"])
async def test_without_an_identity_only_the_version_proves_the_source(
    store: GcsStore, emulator: GcsEmulator, place: str
) -> None:
    """An object whose metadata changed has the same bytes; another one is left alone, however long it is."""
    status = await store.put(SOURCE, b"data")
    assert status.version is not None
    objects = emulator.namespace.buckets["data"].objects
    if place == "file":
        await store.put(SOURCE, b"else")
        with pytest.raises(StorePreconditionError):
            await store.rename_file(SOURCE, TARGET, version=status.version, identity=None)
        assert object_at(emulator, "source") == b"else"
    elif place == "metadata":
        objects["test/root/source"].metageneration += 1
        await store.rename_file(SOURCE, TARGET, version=status.version, identity=None)
        assert object_at(emulator, "target") == b"data"
    else:
        await store.delete_file(SOURCE)
        with pytest.raises(StoreNotFoundError):
            await store.rename_file(SOURCE, TARGET, version=status.version, identity=None)
    for odd in ("no version", ""):
        objects.clear()
        await store.put(SOURCE, b"data")
        with pytest.raises(StorePreconditionError):
            await store.rename_file(SOURCE, TARGET, version=odd, identity=None)
    assert set(objects) == {"test/root/source"}


async def test_without_an_identity_the_source_can_change_after_the_look(
    store: GcsStore, emulator: GcsEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = await store.put(SOURCE, b"data")
    objects = emulator.namespace.buckets["data"].objects
    objects["test/root/source"].metageneration += 1
    send, moves = store._wire.send, 0

    async def between(operation: str, method: str, *more: Any, **named: Any) -> Any:
        nonlocal moves
        moves += method == "POST"
        if method == "POST" and moves == 2:
            await BucketChannel(emulator).write("source", b"else")
        return await send(operation, method, *more, **named)

    monkeypatch.setattr(store._wire, "send", between)
    assert status.version is not None
    with pytest.raises(StorePreconditionError):
        await store.rename_file(SOURCE, TARGET, version=status.version, identity=None)
    assert (object_at(emulator, "source"), object_at(emulator, "target")) == (b"else", None)


async def test_a_second_arrival_of_the_request_moves_nothing(store: GcsStore, emulator: GcsEmulator) -> None:
    """Not after the file was brought back, either, which a rename by identity alone would move once more."""
    status = await store.put(SOURCE, b"data")
    await publish(store, status)
    await store.rename_file(TARGET, SOURCE, identity=status.identity)
    assert status.version is not None
    answer = await store._renames._move(SOURCE, TARGET, [("ifSourceGenerationMatch", status.version)])
    assert answer.status == 412
    assert object_at(emulator, "source") == b"data"


@pytest.mark.parametrize("kind", ["reset", "reset-after", "error-after"])
async def test_a_lost_answer_is_never_followed_by_another_move(
    store: GcsStore, emulator: GcsEmulator, kind: str
) -> None:
    status = await store.put(SOURCE, b"data")
    emulator.conduct.faults.append(Fault(operation="move", kind=kind, status=503, code="backendError"))
    with pytest.raises(StoreOutcomeUnknownError):
        await publish(store, status)
    assert requests(emulator, "move") == ["move"]


# --- Jobs ---------------------------------------------------------------------------------------------------------


async def written(emulator: GcsEmulator, job_id: str = "J") -> dict[str, object]:
    """A job whose only task is committed, by listing."""
    options: dict[str, object] = {"endpoint": emulator.url}
    job = await committer.open_job(TABLE.uri, job_id=job_id, storage_options=options)
    async with job.task_attempt(0) as task:
        for name, data in FILES.items():
            async with task.open(name) as file:
                await file.write(data)
    await job.close()
    emulator.conduct.log.clear()
    return options


def record_of(emulator: GcsEmulator) -> str:
    objects = emulator.namespace.buckets["data"].objects
    return next(name for name in objects if "/manifests/" in name)


async def commit(options: dict[str, object]) -> committer.JobReport:
    async with committer.attach_job(TABLE.uri, job_id="J", storage_options=options) as job:
        return await job.commit(tasks=1)


async def test_a_job_publishes_each_file_by_one_request(emulator: GcsEmulator) -> None:
    report = await commit(await written(emulator))
    assert report.files_committed == len(FILES)
    asked = [entry for entry in emulator.conduct.log if "/tasks/" in entry.path + entry.source]
    moves = [entry.source for entry in asked if entry.operation == "move"]
    assert len(moves) == len(set(moves)) == len(FILES)
    # One file of each task attempt is looked at before the decision.
    assert [entry.operation for entry in asked if entry.operation == "get"] == ["get"]


@pytest.mark.parametrize("version", [None, "1", "", "x&ifGenerationMatch=7", "9" * 30])
async def test_a_record_that_says_something_else_is_followed_by_a_look(
    emulator: GcsEmulator, version: str | None
) -> None:
    options = await written(emulator)
    name = record_of(emulator)
    record = emulator.namespace.buckets["data"].objects[name]
    manifest = decode_task_manifest(record.data, source=name)
    files = [msgspec.structs.replace(file, v=version) for file in manifest.files]
    store = store_on(emulator)
    await store.put(
        StorePath("gs", "data", f"/{name}"), encode_task_manifest(msgspec.structs.replace(manifest, files=files))
    )
    await store.close()
    report = await commit(options)
    assert (report.files_committed, report.renames_recovered) == (len(FILES), 0)
    assert {name: object_at(emulator, f"table/{name}") for name in FILES} == FILES


async def test_a_source_that_was_replaced_stops_the_job(emulator: GcsEmulator) -> None:
    options = await written(emulator)
    store = store_on(emulator)
    names = sorted(name for name in emulator.namespace.buckets["data"].objects if "part-5" in name)
    await store.put(StorePath("gs", "data", f"/{names[0]}"), b"x" * 5)
    await store.close()
    with pytest.raises(CommitterError) as caught:
        await commit(options)
    assert caught.value.outcome == "unknown"
    assert object_at(emulator, "table/p=1/part-5.csv") is None
