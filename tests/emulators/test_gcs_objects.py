"""Objects: making, reading, changing and deleting them, under every precondition, as Google's client sees it."""

from __future__ import annotations

import base64
import hashlib

import google_crc32c
import pytest
from google.cloud.storage import Bucket

from committer_testing.emulators.gcs import GcsEmulator
from committer_testing.emulators.gcs.hashes import _in_python, crc32c_of

from .google_clients import Wire, held, names, off_loop, refused, written

MATCHING = ["if_generation_match", "if_metageneration_match"]


async def test_an_object_is_what_was_put(bucket: Bucket) -> None:
    name, data = "a/b c#?%41+&=ü🎉.csv", b"hello" * 1000

    def put() -> None:
        blob = bucket.blob(name)
        blob.metadata = {"committer-attempt": "j/t/0/n", "Key": "ü"}
        blob.cache_control = "no-store"
        blob.upload_from_string(data, content_type="text/csv", retry=None)

    await off_loop(put)
    found = await off_loop(lambda: bucket.get_blob(name, retry=None))

    assert (found.name, found.size, found.metageneration, found.content_type) == (name, 5000, 1, "text/csv")
    assert found.metadata == {"committer-attempt": "j/t/0/n", "Key": "ü"}
    assert found.cache_control == "no-store"
    assert base64.b64decode(found.md5_hash) == hashlib.md5(data).digest()
    assert int.from_bytes(base64.b64decode(found.crc32c)) == google_crc32c.value(data)
    assert await held(bucket, name) == data


def test_the_checksum_without_the_library_is_the_same() -> None:
    for data in (b"", b"123456789", bytes(range(256)) * 5):
        assert base64.b64encode(_in_python()(data).to_bytes(4, "big")).decode() == crc32c_of(data)
    assert _in_python()(b"123456789") == 0xE3069283


@pytest.mark.parametrize(
    ("absent", "condition", "status"),
    [
        (True, "ifGenerationMatch=0", 200),
        (True, "ifGenerationMatch=5", 412),
        (True, "ifGenerationNotMatch=0", 412),
        (True, "ifGenerationNotMatch=5", 200),
        (True, "ifMetagenerationMatch=1", 412),
        (True, "ifMetagenerationNotMatch=1", 200),
        (False, "ifGenerationMatch=0", 412),
        (False, "ifGenerationMatch=5", 412),
        (False, "ifGenerationMatch={}", 200),
        (False, "ifGenerationNotMatch=0", 200),
        (False, "ifGenerationNotMatch={}", 412),
        (False, "ifMetagenerationMatch=1", 200),
        (False, "ifMetagenerationMatch=2", 412),
        (False, "ifMetagenerationNotMatch=1", 412),
        (False, "ifGenerationMatch={}&ifMetagenerationMatch=2", 412),
        (True, "ifGenerationMatch=none", 400),
    ],
)
@pytest.mark.parametrize("call", ["media", "multipart", "resumable", "move", "rewrite", "copy", "compose"])
async def test_every_call_that_makes_an_object_keeps_to_conditions(
    gcs: GcsEmulator, wire: Wire, absent: bool, condition: str, status: int, call: str
) -> None:
    await wire.insert("source", b"new")
    before = 0 if absent else (await wire.insert("target", b"old")).json["generation"]
    condition = condition.format(before)

    if call == "media":
        answer = await wire.insert("target", b"new", f"&{condition}")
    elif call == "multipart":
        body = b'--x\r\nContent-Type: application/json\r\n\r\n{"name":"target"}\r\n--x\r\n\r\nnew\r\n--x--'
        kind = {"Content-Type": "multipart/related; boundary=x"}
        answer = await wire("POST", f"/upload/storage/v1/b/data/o?uploadType=multipart&{condition}", body, kind)
    elif call == "resumable":
        answer = await wire("POST", f"/upload/storage/v1/b/data/o?uploadType=resumable&name=target&{condition}")
        if answer.status == 200:
            answer = await wire("PUT", answer.headers["Location"], b"new")
    elif call == "move":
        answer = await wire("POST", f"/storage/v1/b/data/o/source/moveTo/o/target?{condition}")
    elif call in {"rewrite", "copy"}:
        answer = await wire("POST", f"/storage/v1/b/data/o/source/{call}To/b/data/o/target?{condition}")
    else:
        sources = {"sourceObjects": [{"name": "source"}]}
        answer = await wire("POST", f"/storage/v1/b/data/o/target/compose?{condition}", sources)

    assert answer.status == status
    if status == 412:
        assert answer.reason == "conditionNotMet"
    objects = gcs.namespace.buckets["data"].objects
    target = objects["target"].data if "target" in objects else None
    assert target == (b"new" if status == 200 else None if absent else b"old")
    assert ("source" in objects) is (call != "move" or status != 200)


@pytest.mark.parametrize("option", MATCHING)
async def test_reads_keep_to_conditions(bucket: Bucket, option: str) -> None:
    generation = await written(bucket, "a")
    right, wrong = {option: generation if "metag" not in option else 1}, {option: 7}
    without = option.replace("_match", "_not_match")

    blob = bucket.blob("a")
    await off_loop(lambda: blob.reload(retry=None, **right))
    assert await off_loop(lambda: blob.download_as_bytes(retry=None, **right)) == b"data"
    with refused(412, "conditionNotMet"):
        await off_loop(lambda: blob.reload(retry=None, **wrong))
    with refused(412):
        await off_loop(lambda: blob.download_as_bytes(retry=None, **wrong))
    with refused(304):
        await off_loop(lambda: blob.reload(retry=None, **{without: right[option]}))


@pytest.mark.parametrize("option", MATCHING)
async def test_changes_and_deletions_keep_to_conditions(bucket: Bucket, option: str) -> None:
    generation = await written(bucket, "a")
    blob = bucket.blob("a")
    blob.metadata = {"k": "v"}
    for call in (blob.patch, blob.delete):
        with refused(412, "conditionNotMet"):
            await off_loop(lambda call=call: call(retry=None, **{option: 7}))
        right = {option: generation if "metag" not in option else blob.metageneration or 1}
        await off_loop(lambda call=call, right=right: call(retry=None, **right))
    assert await names(bucket) == []


async def test_what_is_not_there_is_not_found(bucket: Bucket, wire: Wire) -> None:
    await written(bucket, "a")
    blob = bucket.blob("b")
    blob.metadata = {"k": "v"}
    for call in (blob.reload, blob.delete, blob.patch):
        with refused(404, "notFound"):
            await off_loop(lambda call=call: call(retry=None))
    with refused(404):
        await off_loop(lambda: blob.download_as_bytes(retry=None))
    other = bucket.client.bucket("other")
    with refused(404, "notFound"):
        await names(other)
    with refused(404, "notFound"):
        await off_loop(lambda: other.blob("a").upload_from_string(b"", retry=None))
    assert (await wire("GET", "/storage/v1/b/data/o/a?generation=1")).reason == "notFound"
    assert (await wire("GET", "/storage/v1/b/data/o/b?alt=media")).body == b"No such object: data/b"


async def test_ranges_are_given(bucket: Bucket, wire: Wire) -> None:
    await written(bucket, "a", b"0123456789")
    await written(bucket, "empty", b"")
    blob = bucket.blob("a")

    assert await off_loop(lambda: blob.download_as_bytes(start=2, end=4, retry=None, checksum=None)) == b"234"
    path = "/download/storage/v1/b/data/o/a?alt=media"
    for asked, given in (("bytes=7-", b"789"), ("bytes=-2", b"89"), ("bytes=0-99", b"0123456789")):
        answer = await wire("GET", path, headers={"Range": asked})
        assert (answer.status, answer.body) == (206, given)
    assert answer.headers["Content-Range"] == "bytes 0-9/10"
    assert (await wire("GET", path, headers={"Range": "bytes=10-"})).status == 416
    assert (await wire("GET", path.replace("/a?", "/empty?"), headers={"Range": "bytes=0-9"})).status == 416
    assert (await wire("GET", path, headers={"Range": "lines=1-2"})).status == 200


async def test_a_change_keeps_the_generation_and_names_fields(bucket: Bucket) -> None:
    generation = await written(bucket, "a", b"data", k="v", other="stays")

    def change() -> None:
        blob = bucket.get_blob("a")
        blob.metadata = {"k": None, "new": "w"}
        blob.content_language = "de"
        blob.patch(retry=None)

    await off_loop(change)
    found = await off_loop(lambda: bucket.get_blob("a", retry=None))
    assert (found.generation, found.metageneration) == (generation, 2)
    assert found.metadata == {"other": "stays", "new": "w"}
    assert found.content_language == "de"


@pytest.mark.parametrize("call", ["media", "multipart", "header", "end of a resumable upload"])
@pytest.mark.parametrize("kind", ["crc32c", "md5"])
async def test_a_wrong_checksum_makes_no_object(bucket: Bucket, wire: Wire, call: str, kind: str) -> None:
    right = {"crc32c": crc32c_of(b"new"), "md5": base64.b64encode(hashlib.md5(b"new").digest()).decode()}[kind]
    wrong = {"crc32c": crc32c_of(b"old"), "md5": base64.b64encode(hashlib.md5(b"old").digest()).decode()}[kind]
    for value, status in ((wrong, 400), (right, 200)):
        header = {"X-Goog-Hash": f"{kind}={value}"}
        if call == "media":
            answer = await wire.insert("a", b"new", **header)
        elif call == "header":
            named = header if kind == "crc32c" else {"Content-MD5": value}
            answer = await wire.insert("a", b"new", **named)
        elif call == "multipart":
            field = "md5Hash" if kind == "md5" else "crc32c"
            head = f'--x\r\n\r\n{{"name":"a","{field}":"{value}"}}\r\n--x\r\n\r\nnew\r\n--x--'.encode()
            kinds = {"Content-Type": "multipart/related; boundary=x"}
            answer = await wire("POST", "/upload/storage/v1/b/data/o?uploadType=multipart", head, kinds)
        else:
            started = await wire("POST", "/upload/storage/v1/b/data/o?uploadType=resumable&name=a")
            answer = await wire("PUT", started.headers["Location"], b"new", header)
        assert answer.status == status
        assert await names(bucket) == ([] if status == 400 else ["a"])


@pytest.mark.parametrize("name", [".", "..", "a%0Ab", "a%0Db", "n" * 1025, "%C3%BC" * 513])
async def test_names_and_metadata_have_the_services_limits(wire: Wire, bucket: Bucket, name: str) -> None:
    assert (await wire.insert(name)).reason == "invalid"
    assert (await wire.insert("%C3%BC" * 512)).status == 200
    with refused(400, "invalid"):
        await written(bucket, "a", b"", k="x" * 8192)
    await written(bucket, "a", b"", k="x" * 8191)
    assert await names(bucket) == ["a", "ü" * 512]


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/storage/v1/b/data/nothing", 404, "notFound"),
        ("POST", "/storage/v1/b/data/o/a", 404, "notFound"),
        ("GET", "/storage/v1/b/data/folders", 501, "notImplemented"),
        ("POST", "/upload/storage/v1/b/data/o", 400, "required"),
        ("POST", "/upload/storage/v1/b/data/o?uploadType=media", 400, "required"),
        ("POST", "/upload/storage/v1/b/data/o?uploadType=other&name=a", 400, "invalid"),
        ("GET", "/storage/v1/b/data/o?maxResults=x", 400, "invalid"),
        ("GET", "/storage/v1/b/data/o?matchGlob=*", 501, "notImplemented"),
        ("GET", "/storage/v1/b/data/o?pageToken=x", 400, "invalid"),
        ("GET", "/storage/v1/b/data/o?fields=items(name", 400, "invalidParameter"),
        ("GET", "/storage/v1/b/data/o/%FF", 400, "invalid"),
        ("PATCH", "/storage/v1/b/data/o/made", 400, "parseError"),
    ],
)
async def test_refusals_have_googles_form(wire: Wire, method: str, path: str, status: int, reason: str) -> None:
    await wire.insert("made")
    for body in (b"{", b"[]") if method == "PATCH" else (None,):
        answer = await wire(method, path, body)
        assert (answer.status, answer.reason) == (status, reason)
