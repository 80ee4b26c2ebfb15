"""Faults on demand, limits, idempotency tokens and batches; the rest of `/_control` is the ADLS emulator's, too."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from google.cloud.storage import Bucket

from committer_testing.emulators.gcs import Fault, GcsEmulator, Settings, serve

from .google_clients import Wire, held, names, off_loop, refused, written

TOKEN = "x-goog-gcs-idempotency-token"
MOVE = "/storage/v1/b/data/o/a/moveTo/o/b?ifGenerationMatch=0"


async def test_a_lost_answer_comes_after_the_effect(wire: Wire, bucket: Bucket, gcs: GcsEmulator) -> None:
    await wire.insert("a")
    fault = {"kind": "reset-after", "operation": "move", "path_prefix": "data/b", "count": 1}
    assert (await wire("POST", "/_control/faults", fault)).status == 200

    with pytest.raises(aiohttp.ClientError):
        await wire("POST", MOVE)

    assert await names(bucket) == ["b"]
    logged = (await wire("GET", "/_control/requests?operation=move")).json
    assert [(one["status"], one["path"], one["source"]) for one in logged] == [(0, "data/b", "data/a")]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (408, "requestTimeout"),
        (429, "rateLimitExceeded"),
        (500, "internalError"),
        (503, "backendError"),
        (504, "backendError"),
    ],
)
@pytest.mark.parametrize("kind", ["error", "error-after", "reset"])
async def test_a_fault_comes_before_or_after_the_effect(
    wire: Wire, bucket: Bucket, gcs: GcsEmulator, kind: Any, status: int, reason: str
) -> None:
    await wire.insert("a")
    gcs.conduct.faults.append(Fault(kind, operation="move", status=status, retry_after="7"))
    if kind == "reset":
        with pytest.raises(aiohttp.ClientError):
            await wire("POST", MOVE)
    else:
        answer = await wire("POST", MOVE)
        assert (answer.status, answer.reason, answer.headers["Retry-After"]) == (status, reason, "7")
    assert await names(bucket) == (["b"] if kind == "error-after" else ["a"])


@pytest.mark.parametrize("kind", ["latency", "latency-after"])
async def test_latency_comes_before_or_after_the_effect(wire: Wire, gcs: GcsEmulator, kind: Any) -> None:
    await wire.insert("a")
    gcs.conduct.faults.append(Fault(kind, operation="move", seconds=30, count=1))
    moving = asyncio.create_task(wire("POST", MOVE))
    while not gcs.conduct.faults[0].hits:
        await asyncio.sleep(0.01)
    done = gcs.namespace.buckets["data"].names() == ["b"]
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)
    assert done is (kind == "latency-after")


async def test_faults_hit_the_first_try_of_each_request(wire: Wire, bucket: Bucket, gcs: GcsEmulator) -> None:
    gcs.conduct.faults.append(Fault("error", operation="insert", status=503, per_request=True))
    for name in ("a", "b"):
        for status in (503, 200):
            answer = await wire.insert(name, b"", **{TOKEN: f"token-{name}"})
            assert answer.status == status
    assert await names(bucket) == ["a", "b"]


async def test_the_name_of_an_upload_is_known_to_faults(bucket: Bucket, gcs: GcsEmulator) -> None:
    """It stands in the body of what Google's client sends."""
    gcs.conduct.faults.append(Fault("error", path_prefix="data/a", status=503))
    with refused(503, "backendError"):
        await written(bucket, "a")
    await written(bucket, "b")
    assert await names(bucket) == ["b"]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_rate_is_kept(status: Any) -> None:
    settings = Settings(rate=1, throttle_status=status, retry_after=2)
    async with serve(settings) as emulator, aiohttp.ClientSession() as session:
        emulator.make_bucket("data")
        wire = Wire(emulator, session)
        assert (await wire.insert("a")).status == 200
        answer = await wire.insert("b")
        assert (answer.status, answer.headers["Retry-After"]) == (status, "2")
        assert answer.reason == ("rateLimitExceeded" if status == 429 else "backendError")
        counters = (await wire("GET", "/_control/counters")).json
        assert (counters["served"], counters["throttled"]) == (1, 1)
        await wire("POST", "/_control/rate", {"rate": 0})
        assert (await wire.insert("b")).status == 200


async def test_one_name_changes_once_a_while() -> None:
    async with serve(Settings(object_change_seconds=60)) as emulator, aiohttp.ClientSession() as session:
        emulator.make_bucket("data")
        wire = Wire(emulator, session)
        assert (await wire.insert("a")).status == 200
        for answer in (await wire.insert("a"), await wire("DELETE", "/storage/v1/b/data/o/a")):
            assert (answer.status, answer.reason) == (429, "rateLimitExceeded")
        assert (await wire.insert("b")).status == 200
        assert (await wire("POST", "/storage/v1/b/data/o/b/moveTo/o/a")).status == 429
        assert (await wire("POST", "/storage/v1/b/data/o/b/moveTo/o/c")).status == 200


async def test_a_change_that_comes_again_has_one_effect(wire: Wire, bucket: Bucket) -> None:
    await wire.insert("a")
    first = await wire("POST", MOVE, headers={TOKEN: "1"})
    again = await wire("POST", MOVE, headers={TOKEN: "1"})
    assert (again.status, again.json) == (200, first.json)
    assert (await wire("POST", MOVE, headers={TOKEN: "2"})).status == 404
    # Only what had an effect is remembered.
    assert (await wire("DELETE", "/storage/v1/b/data/o/c", headers={TOKEN: "3"})).status == 404
    await wire.insert("c")
    for _ in range(2):
        assert (await wire("DELETE", "/storage/v1/b/data/o/c", headers={TOKEN: "3"})).status == 204
    assert await names(bucket) == ["b"]


async def test_a_server_may_not_know_such_tokens() -> None:
    async with serve(Settings(idempotency_tokens=False)) as emulator, aiohttp.ClientSession() as session:
        emulator.make_bucket("data")
        wire = Wire(emulator, session)
        await wire.insert("a")
        for status in (200, 404):
            assert (await wire("POST", MOVE, headers={TOKEN: "1"})).status == status


# --- Batches ------------------------------------------------------------------------------------------------------


async def test_googles_client_deletes_in_batches(bucket: Bucket, gcs: GcsEmulator) -> None:
    for number in range(5):
        await written(bucket, f"a/ü {number}")

    def delete() -> None:
        with bucket.client.batch(raise_exception=False):
            for number in (*range(4), 9):
                bucket.delete_blob(f"a/ü {number}", retry=None)

    await off_loop(delete)
    assert await names(bucket) == ["a/ü 4"]
    assert [entry.status for entry in gcs.conduct.log if entry.operation == "delete"] == [204] * 4 + [404]


def batch(*calls: str, newline: str = "\r\n") -> tuple[bytes, dict[str, str]]:
    parts = []
    for number, call in enumerate(calls):
        lines = ["--x", "Content-Type: application/http", f"Content-ID: <{number}>", "", f"{call} HTTP/1.1", "", ""]
        parts.append(newline.join(lines))
    return newline.join([*parts, "--x--"]).encode(), {"Content-Type": "multipart/mixed; boundary=x"}


async def test_each_call_of_a_batch_has_its_answer(wire: Wire, bucket: Bucket) -> None:
    generation = await written(bucket, "a")
    for name in ("b", "c"):
        await written(bucket, name)
    body, headers = batch(
        f"DELETE /storage/v1/b/data/o/a?ifGenerationMatch={generation}",
        "DELETE /storage/v1/b/data/o/b?ifGenerationMatch=7",
        "GET /storage/v1/b/data/o/c",
    )
    answer = await wire("POST", "/batch/storage/v1", body, headers)
    assert answer.status == 200
    told = answer.body.decode()
    at = [told.index(f"Content-ID: <response-{number}>") for number in range(3)]
    said = [told[start:end] for start, end in zip(at, [*at[1:], None], strict=True)]
    assert ["HTTP/1.1 204 " in said[0], "conditionNotMet" in said[1], '"name":"c"' in said[2]] == [True] * 3
    assert await names(bucket) == ["b", "c"]


async def test_a_batch_has_a_limit_and_an_end(wire: Wire) -> None:
    body, headers = batch(*["GET /storage/v1/b/data/o/c"] * 101)
    assert (await wire("POST", "/batch/storage/v1", body, headers)).reason == "invalid"
    body, headers = batch("GET /storage/v1/b/data/o/c")
    assert (await wire("POST", "/batch/storage/v1", body[:-5], headers)).reason == "invalid"
    assert (await wire("POST", "/batch/storage/v1", body, {"Content-Type": "text/plain"})).reason == "invalid"


async def test_a_fault_hits_a_call_in_a_batch(wire: Wire, bucket: Bucket, gcs: GcsEmulator) -> None:
    for name in ("a", "b"):
        await written(bucket, name)
    gcs.conduct.faults.append(Fault("error", operation="delete", path_prefix="data/a", status=503))
    body, headers = batch("DELETE /storage/v1/b/data/o/a", "DELETE /storage/v1/b/data/o/b")
    told = (await wire("POST", "/batch/storage/v1", body, headers)).body
    assert (told.count(b"HTTP/1.1 503"), told.count(b"HTTP/1.1 204")) == (1, 1)
    assert (await names(bucket), await held(bucket, "a")) == (["a"], b"data")
    gcs.conduct.faults[0] = Fault("reset-after", operation="delete", path_prefix="data/a")
    with pytest.raises(aiohttp.ClientError):
        await wire("POST", "/batch/storage/v1", body, headers)
    assert await names(bucket) == []
