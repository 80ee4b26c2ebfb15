"""Resumable uploads, chunk by chunk, and whole ones, as Google's clients and the wire have them."""

from __future__ import annotations

import io

import aiohttp
import pytest
from gcloud.aio.storage import Storage
from google.cloud.storage import Bucket

from committer_testing.emulators.gcs import GcsEmulator
from committer_testing.emulators.gcs.hashes import crc32c_of

from .google_clients import Reply, Wire, held, names, off_loop, refused, written

CHUNK = 256 * 1024


async def started(wire: Wire, name: str = "a", more: str = "", resource: object = None) -> str:
    """A session; its URL."""
    answer = await wire("POST", f"/upload/storage/v1/b/data/o?uploadType=resumable&name={name}{more}", resource)
    assert (answer.status, answer.body) == (200, b"")
    return answer.headers["Location"]


async def chunk(wire: Wire, url: str, data: bytes, span: str) -> Reply:
    return await wire("PUT", url, data, {"Content-Range": f"bytes {span}"})


async def test_chunks_make_an_object_at_their_end(wire: Wire, bucket: Bucket) -> None:
    url = await started(wire, resource={"metadata": {"committer-attempt": "j/1"}})

    assert "Range" not in (await chunk(wire, url, b"", "*/*")).headers
    for number in range(2):
        span = f"{number * CHUNK}-{(number + 1) * CHUNK - 1}/*"
        answer = await chunk(wire, url, b"x" * CHUNK, span)
        assert (answer.status, answer.headers["Range"]) == (308, f"bytes=0-{(number + 1) * CHUNK - 1}")
        asked = await chunk(wire, url, b"", "*/*")
        assert (asked.status, asked.headers["Range"]) == (308, answer.headers["Range"])
        assert await names(bucket) == []
    made = await chunk(wire, url, b"end", f"{2 * CHUNK}-{2 * CHUNK + 2}/{2 * CHUNK + 3}")

    assert (made.status, made.json["size"]) == (200, str(2 * CHUNK + 3))
    assert made.json["metadata"] == {"committer-attempt": "j/1"}
    assert await held(bucket, "a") == b"x" * 2 * CHUNK + b"end"
    # Its end told again, and asked for.
    for data, span in ((b"end", f"{2 * CHUNK}-{2 * CHUNK + 2}/{2 * CHUNK + 3}"), (b"", "*/*"), (b"", "*/524291")):
        again = await chunk(wire, url, data, span)
        assert (again.status, again.json["generation"]) == (200, made.json["generation"])


async def test_the_end_may_be_told_without_data_and_bytes_may_come_again(wire: Wire, bucket: Bucket) -> None:
    url = await started(wire)
    # What is above a multiple is not kept.
    answer = await chunk(wire, url, b"x" * (CHUNK + 1000), f"0-{CHUNK + 999}/*")
    assert (answer.status, answer.headers["Range"]) == (308, f"bytes=0-{CHUNK - 1}")
    assert (await chunk(wire, url, b"", f"*/{CHUNK + 1}")).status == 308
    assert (await chunk(wire, url, b"", f"*/{CHUNK}")).status == 200
    empty, again = await started(wire, "empty"), await started(wire, "again")
    assert (await chunk(wire, empty, b"", "*/0")).status == 200
    await chunk(wire, again, b"x" * CHUNK, f"0-{CHUNK - 1}/*")
    assert (await chunk(wire, again, b"y" * CHUNK + b"end", f"0-{CHUNK + 2}/{CHUNK + 3}")).status == 200
    assert [await held(bucket, name) for name in ("empty", "a", "again")] == [b"", b"x" * CHUNK, b"x" * CHUNK + b"end"]


@pytest.mark.parametrize(
    ("length", "span"),
    [(1000, "0-999/*"), (CHUNK, f"{CHUNK}-{2 * CHUNK - 1}/*"), (10, "0-10/*"), (10, "0-9/5"), (10, "*/*"), (10, "0-9")],
)
async def test_a_chunk_that_does_not_fit_is_refused(wire: Wire, bucket: Bucket, length: int, span: str) -> None:
    url = await started(wire)
    assert (await chunk(wire, url, b"x" * length, span)).reason == "invalid"
    assert (await chunk(wire, url, b"right", "0-4/5")).status == 200
    assert await held(bucket, "a") == b"right"


async def test_a_name_taken_since_the_start_stays_as_it_is(wire: Wire, bucket: Bucket) -> None:
    url = await started(wire, more="&ifGenerationMatch=0")
    await written(bucket, "a", b"other")
    assert (await chunk(wire, url, b"late", "0-3/4")).reason == "conditionNotMet"
    assert await held(bucket, "a") == b"other"
    answer = await wire("POST", "/upload/storage/v1/b/data/o?uploadType=resumable&name=a&ifGenerationMatch=0")
    assert (answer.status, answer.reason) == (412, "conditionNotMet")


async def test_an_upload_is_cancelled(wire: Wire, bucket: Bucket, gcs: GcsEmulator) -> None:
    url = await started(wire)
    assert (await wire("DELETE", url)).status == 499
    assert (await chunk(wire, url, b"late", "0-3/4")).status == 410
    assert await names(bucket) == []
    other = await started(wire)
    gcs.api.uploads.sessions.clear()
    assert (await chunk(wire, other, b"late", "0-3/4")).status == 404


async def test_a_checksum_in_the_resource_is_verified_at_the_end(wire: Wire, bucket: Bucket) -> None:
    url = await started(wire, resource={"crc32c": crc32c_of(b"right")})
    assert (await chunk(wire, url, b"wrong", "0-4/5")).reason == "invalid"
    assert (await chunk(wire, url, b"right", "0-4/5")).status == 410
    assert await names(bucket) == []


async def test_the_url_of_an_upload_authorises(wire: Wire, gcs: GcsEmulator) -> None:
    url = await started(wire)
    gcs.access.revoke()
    assert (await chunk(wire, url, b"x", "0-0/1")).status == 200
    assert (await wire("GET", "/storage/v1/b/data/o/a")).status == 401


async def test_googles_client_uploads_in_chunks(bucket: Bucket, gcs: GcsEmulator) -> None:
    data = bytes(range(256)) * 4000

    def put() -> None:
        blob = bucket.blob("big", chunk_size=CHUNK)
        blob.metadata = {"k": "v"}
        blob.upload_from_file(io.BytesIO(data), if_generation_match=0, checksum="crc32c", retry=None)

    await off_loop(put)
    assert await held(bucket, "big") == data
    statuses = [entry.status for entry in gcs.conduct.log if entry.operation == "upload-chunk"]
    assert statuses == [308, 308, 308, 200]
    with refused(412, "conditionNotMet"):
        await off_loop(put)


async def test_the_other_client_of_google_works(gcs: GcsEmulator, bucket: Bucket) -> None:
    """gcloud-aio-storage, whose credentials the store uses."""
    async with aiohttp.ClientSession() as session:
        storage = Storage(session=session, api_root=gcs.url)
        await storage.upload("data", "a/ü", b"small", metadata={"metadata": {"k": "v"}})
        await storage.upload("data", "big", b"x" * (CHUNK * 3), force_resumable_upload=True)
        assert (await storage.download_metadata("data", "a/ü"))["metadata"] == {"k": "v"}
        assert await storage.download("data", "a/ü") == b"small"
        await storage.copy("data", "big", "data", new_name="copy")
        await storage.compose("data", "both", ["a/ü", "a/ü"])
        listed = await storage.list_objects("data", params={"prefix": "", "delimiter": "/"})
        assert [one["name"] for one in listed["items"]] == ["big", "both", "copy"]
        assert listed["prefixes"] == ["a/"]
        await storage.delete("data", "big")
        assert (await storage.get_bucket_metadata("data"))["name"] == "data"
        with pytest.raises(aiohttp.ClientResponseError) as caught:
            await storage.download_metadata("data", "big")
        assert caught.value.status == 404
    assert await names(bucket) == ["a/ü", "both", "copy"]
    assert await held(bucket, "both") == b"smallsmall"
