"""Services whose answers have no end: pages that go round, bodies that go on, bytes that come one by one."""

from __future__ import annotations

import asyncio
import itertools
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from committer.errors import (
    RecordError,
    StoreError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
)
from committer.paths import StorePath
from committer.stores import http
from committer.stores.http_answers import PageTokens
from committer.stores.registry import open_store

pytestmark = pytest.mark.every_loop

ROOTS = {
    "s3": StorePath("s3", "bucket", "/d"),
    "gs": StorePath("gs", "bucket", "/d"),
    "adls": StorePath("abfss", "container@account.dfs.core.windows.net", "/d"),
    "blob": StorePath("az", "container", "/d"),
}
KEYS = {
    "s3": {"access_key_id": "id", "secret_access_key": "key", "region": "here-1", "addressing_style": "path"},
    "gs": {},
    "adls": {"account_key": "a2V5"},
    "blob": {"account_name": "account", "account_key": "a2V5"},
}
# After so many pages the service breaks off: an engine that follows them for ever fails with another error.
MOST_PAGES = 64

Serve = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """A server that reads the head of each request, and answers as `serve` does; its URL."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await serve((await reader.readuntil(b"\r\n\r\n")).decode(), writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def store_at(kind: str, url: str) -> Any:
    """A store that takes the server for its service."""
    where = "endpoint_url" if kind == "s3" else "endpoint"
    return open_store(ROOTS[kind], {where: url, **KEYS[kind]})


async def all_of(entries: AsyncIterator[Any]) -> list[Any]:
    return [entry async for entry in entries]


def s3_list(token: str) -> tuple[str, str]:
    more = f"<NextContinuationToken>{token}</NextContinuationToken><Contents><Key>d/x</Key></Contents>"
    return "", f"<ListBucketResult><IsTruncated>true</IsTruncated>{more}</ListBucketResult>"


def s3_uploads(token: str) -> tuple[str, str]:
    more = f"<NextKeyMarker>d/x</NextKeyMarker><NextUploadIdMarker>{token}</NextUploadIdMarker>"
    return "", f"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>{more}</ListMultipartUploadsResult>"


def s3_parts(token: str) -> tuple[str, str]:
    more = f"<NextPartNumberMarker>{token}</NextPartNumberMarker>"
    return "", f"<ListPartsResult><IsTruncated>true</IsTruncated>{more}</ListPartsResult>"


def gcs_list(token: str) -> tuple[str, str]:
    return "", json.dumps({"items": [{"name": "d/x"}], "nextPageToken": token})


def blob_list(token: str) -> tuple[str, str]:
    return "", f"<EnumerationResults><Blobs/><NextMarker>{token}</NextMarker></EnumerationResults>"


def adls_list(token: str) -> tuple[str, str]:
    kind = "x-ms-resource-type: directory\r\n"
    return f"{kind}x-ms-continuation: {token}\r\n", json.dumps({"paths": [{"name": "d/x"}]})


Calls = Callable[[Any, StorePath], Awaitable[object]]
PAGED: dict[str, tuple[str, Callable[[str], tuple[str, str]], Calls]] = {
    "S3 ListObjectsV2": ("s3", s3_list, lambda store, root: all_of(store.list(root))),
    "S3 ListMultipartUploads": ("s3", s3_uploads, lambda store, root: all_of(store.list_uploads(root))),
    "S3 ListParts": ("s3", s3_parts, lambda store, root: all_of(store.list_parts(root / "x", "id"))),
    "GCS Objects: list": ("gs", gcs_list, lambda store, root: all_of(store.list(root))),
    "Azure List Blobs": ("blob", blob_list, lambda store, root: all_of(store.list(root))),
    "Azure List Blobs, the first alone": ("blob", blob_list, lambda store, root: store.status(root)),
    "ADLS Path - List": ("adls", adls_list, lambda store, root: all_of(store.list(root))),
    "ADLS Path - List of a tree": ("adls", adls_list, lambda store, root: all_of(store.list_tree(root))),
}
CHANGES: dict[str, tuple[str, Callable[[str], tuple[str, str]], Calls]] = {
    "ADLS Path - Delete": ("adls", adls_list, lambda store, root: store.delete_directory(root, recursive=True)),
    "ADLS rename": ("adls", adls_list, lambda store, root: store.rename_directory(root, root / "y")),
}


@pytest.mark.parametrize("circle", [["7"], ["7", "8"], ["7", "8", "9"]], ids=["one", "two", "three"])
@pytest.mark.parametrize("call", [*PAGED, *CHANGES])
async def test_pages_that_go_round_are_not_followed(call: str, circle: list[str]) -> None:
    kind, page, run = (PAGED | CHANGES)[call]
    tokens = itertools.cycle(circle)
    asked = 0

    async def serve(head: str, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        if asked > MOST_PAGES:
            raise ConnectionError
        head_only = head.startswith("HEAD ") and kind != "adls"
        status = "404 Not Found" if head_only else "200 OK"
        headers, body = page(next(tokens) if "HEAD" not in head[:4] else "")
        writer.write(f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode())
        if not head.startswith("HEAD "):
            writer.write(body.encode())

    async with serving(serve) as url:
        store = store_at(kind, url)
        expected = StoreOutcomeUnknownError if call in CHANGES else StoreUnavailableError
        with pytest.raises(expected, match="repeats the token of an earlier page"):
            await run(store, ROOTS[kind])
        await store.close()
    assert asked <= 3 * len(circle) + 3


@pytest.mark.parametrize("lead", [0, 1, 5, 100])
@pytest.mark.parametrize("around", [1, 2, 3, 50])
def test_a_circle_of_tokens_is_found_however_late_it_begins(lead: int, around: int) -> None:
    tokens = PageTokens("list", ROOTS["s3"])
    endless = itertools.chain(range(1, lead + 1), itertools.cycle(range(1000, 1000 + around)))
    followed = 0
    with pytest.raises(StoreUnavailableError, match="repeats"):
        for token in endless:
            tokens.following(token)
            followed += 1
    assert lead + around <= followed <= 3 * (lead + around)


def test_other_tokens_are_followed() -> None:
    tokens = PageTokens("list", ROOTS["s3"])
    assert [tokens.following(token) for token in range(1, 5000)] == list(range(1, 5000))
    with pytest.raises(StoreUnavailableError, match="names no next page"):
        tokens.following("")


BODIES: dict[str, tuple[str, Calls]] = {
    "S3 page": ("s3", PAGED["S3 ListObjectsV2"][2]),
    "S3 uploads": ("s3", PAGED["S3 ListMultipartUploads"][2]),
    "S3 record": ("s3", lambda store, root: store.read(root / "x", limit=1000)),
    "S3 change": ("s3", lambda store, root: store.create_upload(root / "x", stamp="me")),
    "GCS page": ("gs", PAGED["GCS Objects: list"][2]),
    "GCS record": ("gs", lambda store, root: store.read(root / "x", limit=1000)),
    "GCS change": ("gs", lambda store, root: store.put(root / "x", b"data")),
    "Azure page": ("blob", PAGED["Azure List Blobs"][2]),
    "Azure record": ("blob", lambda store, root: store.read(root / "x", limit=1000)),
    "ADLS page": ("adls", PAGED["ADLS Path - List"][2]),
    "ADLS record": ("adls", lambda store, root: store.read(root / "x", limit=1000)),
}


@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden"], ids=["ok", "refused"])
@pytest.mark.parametrize("told", [True, False], ids=["length told", "in chunks"])
@pytest.mark.parametrize("call", BODIES)
async def test_an_answer_without_end_is_not_read_to_its_end(
    call: str, told: bool, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with a typed error when some more has come than any answer of its kind has."""
    kind, run = BODIES[call]
    sent = 0

    async def serve(head: str, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        how = f"Content-Length: {1 << 40}" if told else "Transfer-Encoding: chunked"
        writer.write(f"HTTP/1.1 {status}\r\n{how}\r\n\r\n".encode())
        while True:
            part = b"<" * 65536
            writer.write(part if told else b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
            sent += len(part)
            await asyncio.sleep(0)

    for bound in ("PAGE_BYTES", "CHANGE_BYTES"):
        monkeypatch.setattr(http, bound, 200_000)
    monkeypatch.setattr(http, "ERROR_BYTES", 100_000)
    async with serving(serve) as url, asyncio.timeout(20):
        store = store_at(kind, url)
        with pytest.raises((StoreError, RecordError)) as caught:
            await run(store, ROOTS[kind])
        await store.close()
    if status == "403 Forbidden":
        assert isinstance(caught.value, StorePermissionError)
    elif "record" in call:
        assert "longer than the 1000 bytes" in str(caught.value)
    elif "page" in call or "uploads" in call:
        assert "longer than 200000 bytes" in str(caught.value)
    else:
        # It was done, and what it was answered is lost: so is the answer to a look.
        assert isinstance(caught.value, (StoreOutcomeUnknownError, StoreUnavailableError))
    # What lies in the buffers of both ends was sent, too.
    assert sent < 32 << 20


@pytest.mark.parametrize("told", [True, False], ids=["length told", "in chunks"])
async def test_a_long_file_is_kept_once_while_it_is_read(told: bool) -> None:
    size, part = 32 << 20, b"x" * (1 << 16)

    async def serve(head: str, writer: asyncio.StreamWriter) -> None:
        how = f"Content-Length: {size}" if told else "Transfer-Encoding: chunked"
        writer.write(f"HTTP/1.1 200 OK\r\n{how}\r\n\r\n".encode())
        for _ in range(size // len(part)):
            writer.write(part if told else b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
        writer.write(b"" if told else b"0\r\n\r\n")

    async with serving(serve) as url:
        store = store_at("s3", url)
        tracemalloc.start()
        try:
            assert len(await store.read(ROOTS["s3"] / "x", limit=size)) == size
            assert tracemalloc.get_traced_memory()[1] < 1.4 * size
        finally:
            tracemalloc.stop()
            await store.close()


@pytest.mark.parametrize("line", [b"x: " + b"y" * 1000 + b"\r\n", b"no HTTP" * 9000], ids=["headers", "no HTTP"])
async def test_a_head_without_end_is_not_read_to_its_end(line: bytes) -> None:
    async def serve(head: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" if line.startswith(b"x:") else b"")
        while True:
            writer.write(line)
            await writer.drain()

    async with serving(serve) as url, asyncio.timeout(20):
        store = store_at("s3", url)
        with pytest.raises(StoreUnavailableError, match="the answer was lost") as caught:
            await store.status(ROOTS["s3"] / "x")
        await store.close()
    # What came is not repeated whole.
    assert len(str(caught.value)) < 1000
